#include "store/file_folder.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "io/system_environment.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

namespace {

// A name in a folder has at most 255 bytes.
constexpr std::size_t longest_plain_name = 240;
constexpr std::string_view draft_prefix = "draft.";
constexpr std::string_view taken_suffix = ".taken";
// A file that is replaced while it is read over NFS is told as stale.
constexpr int most_stale_reads = 8;

std::uint64_t random_word() {
  std::uint64_t word = 0;
  system_environment().fill_random(std::as_writable_bytes(std::span(&word, 1)));
  return word;
}

/// FNV-1a, of which two with different beginnings make a name.
std::uint64_t hash_of(std::string_view bytes, std::uint64_t state) noexcept {
  for (const char c : bytes)
    state = (state ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return state;
}

/// Returns the name of a key's file: "k." and the key, or "h." and a hash of it.
std::string name_of_key(std::string_view key) {
  std::string name = "k.";
  for (const char c : key) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
    if (is_plain) {
      name += c;
    } else {
      name += fmt::format("%{:02x}", byte);
    }
    if (name.size() > longest_plain_name) {
      return fmt::format("h.{:016x}{:016x}", hash_of(key, 0xcbf29ce484222325),
                         hash_of(key, 0x84222325cbf29ce4));
    }
  }
  return name;
}

/// Returns the key of a plain name; nothing for a file that is none of ours.
std::optional<std::string> key_of_name(std::string_view name) {
  if (!name.starts_with("k.")) return std::nullopt;
  std::string key;
  for (std::size_t i = 2; i < name.size(); ++i) {
    if (name[i] != '%') {
      key += name[i];
      continue;
    }
    unsigned byte = 0;
    if (i + 2 >= name.size()) return std::nullopt;
    const auto parsed = std::from_chars(&name[i + 1], &name[i + 1] + 2, byte, 16);
    if (parsed.ec != std::errc() || parsed.ptr != &name[i + 1] + 2) return std::nullopt;
    key += static_cast<char>(byte);
    i += 2;
  }
  return key;
}

/// The file of a long key begins with this: the key's length and the key.
std::string head_of(const std::string& key) {
  return fmt::format("{:016x}", key.size()) + key;
}
bool is_hashed(std::string_view name) noexcept { return name.starts_with("h."); }

/// Returns the key of a file that begins with one; nothing if it does not.
std::optional<std::string> key_of_head(std::string_view text) {
  std::size_t size = 0;
  if (text.size() < 16) return std::nullopt;
  const auto parsed = std::from_chars(text.data(), text.data() + 16, size, 16);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + 16) return std::nullopt;
  if (size > text.size() - 16) return std::nullopt;
  return std::string(text.substr(16, size));
}

/// Returns all of a file; nothing if it is not there.
std::optional<std::string> whole_file(const std::string& path) {
  for (int tries = 1;; ++tries) {
    // What others put there, such as a pipe, must not hold up the store's thread.
    const unique_descriptor fd(
        ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
    if (!fd && errno == ENOENT) return std::nullopt;
    std::string text;
    struct stat file {};
    bool failed = !fd || ::fstat(fd.get(), &file) != 0;
    if (!failed) text.resize(static_cast<std::size_t>(file.st_size));
    for (std::size_t at = 0; !failed && at < text.size();) {
      const ssize_t n = ::read(fd.get(), text.data() + at, text.size() - at);
      if (n < 0 && errno == EINTR) continue;
      failed = n < 0;
      // A file is renamed to its place whole, and never changed there.
      if (n == 0) text.resize(at);
      if (n > 0) at += static_cast<std::size_t>(n);
    }
    if (!failed) return text;
    const int error = errno;
    if (error != ESTALE || tries == most_stale_reads)
      throw file_trouble("cannot read \"" + path + "\"", error);
  }
}

void write_file(const std::string& path, const std::string& head,
                const std::string& value) {
  unique_descriptor fd(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!fd) throw file_trouble("cannot make \"" + path + "\"", errno);
  for (std::string_view text : {std::string_view(head), std::string_view(value)}) {
    while (!text.empty()) {
      const ssize_t n = ::write(fd.get(), text.data(), text.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw file_trouble("cannot write \"" + path + "\"", errno);
      text.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  // NFS and quotas tell only here that there was no room.
  if (::close(fd.release()) != 0)
    throw file_trouble("cannot write \"" + path + "\"", errno);
}

/// Calls `f` with the name of each entry of a folder that is there.
template <class F>
void for_each_name(const std::string& path, F f) {
  DIR* const folder = ::opendir(path.c_str());
  if (!folder && errno == ENOENT) return;
  if (!folder) throw file_trouble("cannot list \"" + path + "\"", errno);
  const struct closing {
    DIR* folder;
    ~closing() { ::closedir(folder); }
  } closes{folder};
  for (;;) {
    errno = 0;
    const dirent* const entry = ::readdir(folder);
    if (!entry && errno != 0) throw file_trouble("cannot list \"" + path + "\"", errno);
    if (!entry) return;
    const std::string_view name(entry->d_name);
    if (name != "." && name != "..") f(name);
  }
}

void make_folder(const std::string& path) {
  for (std::size_t at = 1; at != std::string::npos;) {
    at = path.find('/', at + 1);
    const std::string part = path.substr(0, at);
    if (::mkdir(part.c_str(), 0777) == 0 || errno == EEXIST) continue;
    // Above it there may be folders in which this user makes nothing.
    const int error = errno;
    struct stat found {};
    if (::stat(part.c_str(), &found) == 0 && S_ISDIR(found.st_mode)) continue;
    throw std::system_error(error, std::generic_category(),
                            "file store \"" + path + "\"");
  }
  const unique_descriptor folder(
      ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder)
    throw std::system_error(errno, std::generic_category(),
                            "file store \"" + path + "\"");
}

/// File systems that only the kernel of this host changes: inotify tells of all changes.
bool is_of_this_host(const std::string& path) noexcept {
  struct statfs of {};
  if (::statfs(path.c_str(), &of) != 0) return false;
  constexpr std::array<std::uint64_t, 8> known = {
      0xef53,      // ext4
      0x58465342,  // xfs
      0x9123683e,  // btrfs
      0x01021994,  // tmpfs
      0x794c7630,  // overlayfs
      0x2fc12fc1,  // zfs
      0xf2f52010,  // f2fs
      0x858458f6,  // ramfs
  };
  const auto type = static_cast<std::uint64_t>(of.f_type) & 0xffffffff;
  return std::find(known.begin(), known.end(), type) != known.end();
}

/// Returns the option of the folder's mount by which its locks exclude no other host, and
/// nothing if there is none.
std::string mount_without_locks(const std::string& path) {
  struct stat folder {};
  if (::stat(path.c_str(), &folder) != 0) return {};
  const std::string device =
      fmt::format(" {}:{} ", major(folder.st_dev), minor(folder.st_dev));
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    if (line.find(device) == std::string::npos) continue;
    const std::size_t options = line.rfind(' ');
    if (options == std::string::npos) continue;
    const std::string list = "," + line.substr(options + 1) + ",";
    for (const char* const option :
         {"nolock", "local_lock=all", "local_lock=posix", "localflock", "noflock"}) {
      if (list.find(std::string(",") + option + ",") != std::string::npos) return option;
    }
  }
  return {};
}

/// Locks or unlocks for the open file, not for the process: two stores of one process
/// exclude each other too.
bool set_lock(int fd, short type) noexcept {
  struct flock all {};
  all.l_type = type;
  all.l_whence = SEEK_SET;
  while (::fcntl(fd, F_OFD_SETLK, &all) != 0) {
    if (errno != EINTR) return false;
  }
  return true;
}

}  // namespace

file_trouble::file_trouble(const std::string& what, int error)
    : std::runtime_error(what + ": " + std::strerror(error)), error_(error) {}

bool file_trouble::is_full() const noexcept {
  return error_ == ENOSPC || error_ == EDQUOT || error_ == EFBIG;
}

file_folder::file_folder(std::string path)
    : path_(std::move(path)),
      draft_(fmt::format("{}/{}{}.{:016x}", path_, draft_prefix, ::getpid(),
                         random_word())) {
  make_folder(path_);
  for (const std::string& inner : {keys_folder(), queues_folder()}) make_folder(inner);
  const std::string lock = path_ + "/lock";
  lock_ = unique_descriptor(::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!lock_)
    throw std::system_error(errno, std::generic_category(),
                            "file store \"" + lock + "\"");
  prove_locks();
  is_local_ = is_of_this_host(path_);
  // The next one that comes does it if this one cannot.
  if (const hold held(*this); held.is_held()) remove_drafts();
}

/// Two open files exclude each other where locks work, as two processes do.
void file_folder::prove_locks() const {
  const auto refuse = [this](const std::string& why) {
    throw std::runtime_error("file store \"" + path_ + "\": " + why);
  };
  if (const std::string option = mount_without_locks(path_); !option.empty())
    refuse("its file system is mounted with " + option +
           ", so that locks do not exclude other hosts");
  const std::string probe = draft_ + ".probe";
  const unique_descriptor first(
      ::open(probe.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!first) refuse(std::string("cannot make a file: ") + std::strerror(errno));
  const unique_descriptor second(::open(probe.c_str(), O_RDWR | O_CLOEXEC));
  const int open_error = errno;
  ::unlink(probe.c_str());
  if (!second) refuse(std::string("cannot open a file: ") + std::strerror(open_error));
  if (!set_lock(first.get(), F_WRLCK))
    refuse(std::string("its file system has no locks: ") + std::strerror(errno));
  if (set_lock(second.get(), F_WRLCK))
    refuse("its file system grants one lock to two at a time");
  const int error = errno;
  if (error != EAGAIN && error != EACCES)
    refuse(std::string("its file system has no locks: ") + std::strerror(error));
  if (!set_lock(first.get(), F_UNLCK) || !set_lock(second.get(), F_WRLCK))
    refuse("its file system does not free a lock");
}

void file_folder::remove_drafts() const {
  std::vector<std::string> drafts;
  // None is in use: a draft lives only while the folder is held.
  for_each_name(path_, [&](std::string_view name) {
    if (name.starts_with(draft_prefix) && !name.ends_with(".probe"))
      drafts.emplace_back(name);
  });
  for (const std::string& name : drafts) ::unlink((path_ + "/" + name).c_str());
}

bool file_folder::lock() const noexcept { return set_lock(lock_.get(), F_WRLCK); }
void file_folder::unlock() const noexcept { set_lock(lock_.get(), F_UNLCK); }

void file_folder::look_again() const noexcept {
  if (is_local_) return;
  // An open demands what the server has: close-to-open consistency, of folders too.
  for (const std::string& folder : {keys_folder(), queues_folder()}) {
    const unique_descriptor opened(
        ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
}

std::string file_folder::file_of(const std::string& key) const {
  return keys_folder() + "/" + name_of_key(key);
}
std::string file_folder::folder_of(const std::string& queue) const {
  return queues_folder() + "/" + name_of_key(queue);
}

std::optional<std::string> file_folder::read(const std::string& key) const {
  const std::string path = file_of(key);
  std::optional<std::string> text = whole_file(path);
  if (!text || !is_hashed(name_of_key(key))) return text;
  const std::string head = head_of(key);
  if (!text->starts_with(head))
    throw file_trouble("\"" + path + "\" is the file of another key too", EEXIST);
  text->erase(0, head.size());
  return text;
}

bool file_folder::contains(const std::string& key) const {
  struct stat found {};
  if (::stat(file_of(key).c_str(), &found) == 0) return true;
  if (errno != ENOENT)
    throw file_trouble("cannot look at \"" + file_of(key) + "\"", errno);
  if (::stat(folder_of(key).c_str(), &found) != 0) return false;
  return queue_size(key) > 0;
}

std::vector<std::string> file_folder::keys() const {
  std::vector<std::string> found;
  for_each_name(keys_folder(), [&](std::string_view name) {
    if (std::optional<std::string> key = key_of_name(name)) {
      found.push_back(std::move(*key));
    } else if (is_hashed(name)) {
      const auto text = whole_file(keys_folder() + "/" + std::string(name));
      key = text ? key_of_head(*text) : std::nullopt;
      if (key) found.push_back(std::move(*key));
    }
  });
  return found;
}

std::int64_t file_folder::key_count() const {
  std::int64_t count = 0;
  for_each_name(keys_folder(), [&](std::string_view name) {
    count += name.starts_with("k.") || is_hashed(name);
  });
  return count;
}

/// A value's file is its number. The number of the last that was taken stays, with a
/// suffix, so that none is given twice.
file_folder::queue_files file_folder::files_of(const std::string& queue) const {
  queue_files found;
  for_each_name(folder_of(queue), [&](std::string_view name) {
    std::uint64_t place = 0;
    const bool is_taken = name.ends_with(taken_suffix);
    if (is_taken) name.remove_suffix(taken_suffix.size());
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), place);
    if (parsed.ec != std::errc() || parsed.ptr != name.data() + name.size()) return;
    found.next = std::max(found.next, place + 1);
    if (!is_taken) found.places.push_back(place);
  });
  std::sort(found.places.begin(), found.places.end());
  return found;
}

std::int64_t file_folder::queue_size(const std::string& queue) const {
  return static_cast<std::int64_t>(files_of(queue).places.size());
}

std::uint64_t file_folder::pushes(const std::string& queue) const {
  return files_of(queue).next;
}

/// Writes a draft and renames it, so that a reader sees all of it or nothing.
void file_folder::put(const std::string& file, const std::string& head,
                      const std::string& value) {
  try {
    write_file(draft_, head, value);
    if (::rename(draft_.c_str(), file.c_str()) != 0)
      throw file_trouble("cannot write \"" + file + "\"", errno);
  } catch (const file_trouble&) {
    ::unlink(draft_.c_str());
    throw;
  }
}

void file_folder::write(const std::string& key, const std::string& value) {
  const bool hashed = is_hashed(name_of_key(key));
  // Another key with the same hash keeps its file.
  if (hashed) static_cast<void>(read(key));
  put(file_of(key), hashed ? head_of(key) : std::string(), value);
}

bool file_folder::erase(const std::string& key) {
  if (is_hashed(name_of_key(key)) && !read(key)) return false;
  if (::unlink(file_of(key).c_str()) == 0) return true;
  if (errno == ENOENT) return false;
  throw file_trouble("cannot erase \"" + file_of(key) + "\"", errno);
}

void file_folder::push(const std::string& queue, const std::string& value) {
  const std::string folder = folder_of(queue);
  if (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST)
    throw file_trouble("cannot make \"" + folder + "\"", errno);
  const std::uint64_t place = files_of(queue).next;
  put(fmt::format("{}/{}", folder, place), "", value);
  if (place > 0)
    ::unlink(fmt::format("{}/{}{}", folder, place - 1, taken_suffix).c_str());
  // Waits watch the folder above, of which this changes an attribute.
  ::utimensat(AT_FDCWD, queues_folder().c_str(), nullptr, 0);
}

std::optional<std::string> file_folder::pop(const std::string& queue) {
  const std::vector<std::uint64_t> places = files_of(queue).places;
  if (places.empty()) return std::nullopt;
  const std::string file = fmt::format("{}/{}", folder_of(queue), places.front());
  std::optional<std::string> value = whole_file(file);
  if (!value) throw file_trouble("cannot read \"" + file + "\"", ENOENT);
  if (places.size() == 1) put(file + std::string(taken_suffix), "", "");
  if (::unlink(file.c_str()) != 0)
    throw file_trouble("cannot erase \"" + file + "\"", errno);
  return value;
}

}  // namespace manyworlds::inline v0::detail
