#include "spmd/content_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "memory/sealable_memory.hpp"
#include "spmd/content_digest.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// Seals that let the file be nothing but read.
constexpr int content_seals = size_seals | F_SEAL_WRITE;

/// The content of a file while this lives; empty if it cannot be mapped.
class mapped_content {
 public:
  mapped_content(int file, std::size_t bytes, int protection) noexcept
      : data_(::mmap(nullptr, bytes, protection, MAP_PRIVATE, file, 0)), bytes_(bytes) {}
  mapped_content(const mapped_content&) = delete;
  mapped_content& operator=(const mapped_content&) = delete;
  ~mapped_content() {
    if (data_ != MAP_FAILED) ::munmap(data_, bytes_);
  }

  explicit operator bool() const noexcept { return data_ != MAP_FAILED; }
  [[nodiscard]] std::span<const std::byte> all() const noexcept {
    return {static_cast<const std::byte*>(data_), bytes_};
  }

 private:
  void* data_;
  std::size_t bytes_;
};

/// Returns false, with errno, if not all could be written.
bool write_content(int file, std::span<const std::byte> content) noexcept {
  // Beyond the limit the kernel sends a signal.
  if (!is_within_file_limit(content.size())) {
    errno = EFBIG;
    return false;
  }
  while (!content.empty()) {
    const ssize_t written = ::write(file, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    content = content.subspan(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace

content_file content_file::in_memory(std::span<const std::byte> content) {
  unique_descriptor file(make_sealable_memory("manyworlds-plugin"));
  if (!file || !write_content(file.get(), content) ||
      ::fcntl(file.get(), F_ADD_SEALS, content_seals) != 0)
    return {};
  return {std::move(file), content.size()};
}

content_file content_file::on_disk(std::span<const std::byte> content) {
  const char* const folder = std::getenv("TMPDIR");
  std::string name = fmt::format("{}/manyworlds-plugin-XXXXXX",
                                 folder && *folder != '\0' ? folder : "/tmp");
  unique_descriptor file(::mkostemp(name.data(), O_CLOEXEC));
  if (!file) throw std::system_error(errno, std::generic_category(), name);
  ::unlink(name.c_str());
  if (!write_content(file.get(), content))
    throw std::system_error(errno, std::generic_category(), name);
  return {std::move(file), content.size()};
}

content_file content_file::of_process(std::int64_t pid, int descriptor,
                                      std::uint64_t bytes, const std::string& digest) {
  if (pid <= 0 || descriptor < 0 || bytes == 0) return {};
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, descriptor);
  // On another machine the number is a stranger's, and may be anything: what is no plain
  // file is not opened.
  const unique_descriptor at(::open(path.c_str(), O_PATH | O_CLOEXEC));
  struct stat what {};
  if (!at || ::fstat(at.get(), &what) != 0 || !S_ISREG(what.st_mode)) return {};
  const std::string found = fmt::format("/proc/self/fd/{}", at.get());
  unique_descriptor file(::open(found.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file ||
      examine_sealed(file.get(), content_seals, bytes) != sealed_file::as_it_should_be)
    return {};
  const mapped_content content(file.get(), bytes, PROT_READ);
  if (!content || digest_of(content.all()) != digest) return {};
  return {std::move(file), bytes};
}

std::string content_file::path() const {
  return fmt::format("/proc/self/fd/{}", file_.get());
}

content_file content_file::executable() && {
  if (mapped_content(file_.get(), bytes_, PROT_READ | PROT_EXEC)) return std::move(*this);
  const mapped_content content(file_.get(), bytes_, PROT_READ);
  if (!content) throw std::system_error(errno, std::generic_category(), path());
  return on_disk(content.all());
}

}  // namespace manyworlds::inline v0::detail
