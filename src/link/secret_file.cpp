#include "link/secret_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string_view>

#include "io/descriptor.hpp"
#include "io/system_environment.hpp"

namespace manyworlds::inline v0::detail {

namespace {

constexpr std::size_t random_bytes = 32;

[[noreturn]] void refuse_secret_file(const std::string& path, std::string_view why) {
  throw std::runtime_error(fmt::format("secret file \"{}\": {}", path, why));
}

/// Other users could read the secret, or put their own in its place.
void check_owner(const std::string& path, const struct stat& file) {
  if (!S_ISREG(file.st_mode)) refuse_secret_file(path, "it is no regular file");
  if ((file.st_mode & 077) != 0) {
    refuse_secret_file(
        path, fmt::format("others than its owner may use it (mode {:04o}): chmod 600 it",
                          file.st_mode & 07777));
  }
  if (file.st_uid != ::geteuid() && file.st_uid != 0) {
    refuse_secret_file(
        path, fmt::format("it belongs to user {}, not to this process's {}", file.st_uid,
                          ::geteuid()));
  }
}

/// Returns whether all of the text was written.
bool write_whole(int fd, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno != EINTR) return false;
    if (n > 0) text.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

}  // namespace

secret_text read_secret_file(const std::string& path) {
  // Not blocking: it might be a pipe.
  const unique_descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) refuse_secret_file(path, std::strerror(errno));
  // Of the file that is open, not of what has the name by now.
  struct stat file {};
  if (::fstat(fd.get(), &file) != 0) refuse_secret_file(path, std::strerror(errno));
  check_owner(path, file);
  std::array<char, 256> bytes{};
  std::size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t n = ::read(fd.get(), bytes.data() + size, bytes.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) refuse_secret_file(path, std::strerror(errno));
    if (n == 0) break;
    size += static_cast<std::size_t>(n);
  }
  std::string_view secret(bytes.data(), size);
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r'))
    secret.remove_suffix(1);
  if (secret.empty()) refuse_secret_file(path, "it is empty");
  if (secret.size() > 127) refuse_secret_file(path, "a secret has at most 127 bytes");
  return secret_text(secret);
}

void make_secret_file(const std::string& path) {
  std::array<std::byte, random_bytes> random{};
  system_environment().fill_random(random);
  std::string text;
  for (const std::byte b : random)
    text += fmt::format("{:02x}", std::to_integer<unsigned>(b));
  text += '\n';
  const unique_descriptor fd(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd) refuse_secret_file(path, std::strerror(errno));
  if (write_whole(fd.get(), text) && ::fsync(fd.get()) == 0) return;
  const int error = errno;
  ::unlink(path.c_str());
  refuse_secret_file(path, std::strerror(error));
}

}  // namespace manyworlds::inline v0::detail
