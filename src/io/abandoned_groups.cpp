#include "io/abandoned_groups.hpp"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstdint>
#include <optional>
#include <system_error>
#include <thread>

#include "io/process_list.hpp"
#include "io/process_tree.hpp"

namespace manyworlds::inline v0::detail {

namespace {

constexpr std::string_view group_prefix = "manyworlds-";
/// The folder in a group that is the mark.
constexpr const char* left_mark = "/left";

/// Who has made a group.
struct group_maker {
  std::uint64_t pid = 0;
  std::uint64_t started = 0;  ///< 0 if /proc does not tell
  std::uint64_t pid_namespace = 0;
};

std::uint64_t own_pid_namespace() {
  struct stat is {};
  return ::stat("/proc/self/ns/pid", &is) == 0 ? is.st_ino : 0;
}

/// Reads the numbers of a group's name; nothing if it is not one of ours.
std::optional<group_maker> maker_in(std::string_view name) {
  if (!name.starts_with(group_prefix)) return {};
  name.remove_prefix(group_prefix.size());
  group_maker made;
  for (std::uint64_t* each : {&made.pid, &made.started, &made.pid_namespace}) {
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), *each);
    if (parsed.ec != std::errc{}) return {};
    name.remove_prefix(static_cast<std::size_t>(parsed.ptr - name.data()));
    if (!name.starts_with('-')) return {};
    name.remove_prefix(1);
  }
  return made;
}

/// Returns whether a process that is a zombie has threads that live on.
bool has_other_threads(pid_t pid) {
  struct stat is {};
  // The folder has a link for each thread, beside its own two.
  const std::string path = "/proc/" + std::to_string(pid) + "/task";
  return ::stat(path.c_str(), &is) == 0 && is.st_nlink > 3;
}

/// Returns true only if the maker has certainly ended.
bool has_certainly_ended(const group_maker& maker, std::uint64_t our_namespace) {
  // In another namespace the number is another process's.
  if (our_namespace == 0 || maker.pid_namespace != our_namespace) return false;
  const auto pid = static_cast<pid_t>(maker.pid);
  if (pid <= 0) return false;
  if (::kill(pid, 0) != 0) return errno == ESRCH;
  const auto now = look_at_process(pid);
  if (!now || maker.started == 0) return false;
  if (now->started != maker.started) return true;
  return !now->is_alive() && !has_other_threads(pid);
}

/// Kills what is in a group and removes it. Returns the number of processes that were in
/// it.
std::size_t empty_group(const std::string& folder,
                        std::chrono::steady_clock::time_point until) {
  group_tree group(folder, group_tree::existing{});
  if (::access((folder + left_mark).c_str(), F_OK) == 0 && !group.is_empty()) return 0;
  std::size_t killed = 0;
  while (!group.is_empty()) {
    if (const std::size_t now = group.kill(); killed == 0) killed = now;
    if (std::chrono::steady_clock::now() >= until) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  remove_group(folder);
  return killed;
}

}  // namespace

std::string name_of_group(std::string_view key) {
  const auto self = look_at_process(::getpid());
  std::string name(group_prefix);
  name += std::to_string(::getpid()) + '-';
  name += std::to_string(self ? self->started : 0) + '-';
  name += std::to_string(own_pid_namespace()) + '-';
  return name.append(key);
}

void mark_as_left(const std::string& group) noexcept {
  ::mkdir((group + left_mark).c_str(), 0755);
}

std::string abandoned_group::text() const {
  return std::to_string(killed) + (killed == 1 ? " process" : " processes") +
         " of an earlier start (pid " + std::to_string(maker) +
         "), which was killed, lived on in the control group " + folder + ": killed";
}

std::vector<abandoned_group> end_abandoned_groups(const std::string& folder) {
  std::vector<abandoned_group> emptied;
  std::vector<std::pair<std::string, pid_t>> found;
  const std::uint64_t our_namespace = own_pid_namespace();
  DIR* const entries = ::opendir(folder.c_str());
  if (!entries) return emptied;
  while (const dirent* entry = ::readdir(entries)) {
    const auto maker = maker_in(entry->d_name);
    if (!maker || !has_certainly_ended(*maker, our_namespace)) continue;
    std::string path = folder + '/' + entry->d_name;
    struct stat is {};
    if (::stat(path.c_str(), &is) == 0 && S_ISDIR(is.st_mode) && is.st_uid == ::geteuid())
      found.emplace_back(std::move(path), static_cast<pid_t>(maker->pid));
  }
  ::closedir(entries);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  for (const auto& [path, maker] : found) {
    try {
      const std::size_t killed = empty_group(path, until);
      if (killed > 0) emptied.push_back({path, maker, killed});
    } catch (const std::system_error&) {
      // There is no descriptor to look with: the next start tries again.
    }
  }
  return emptied;
}

}  // namespace manyworlds::inline v0::detail
