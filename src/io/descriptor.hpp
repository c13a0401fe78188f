// Unique descriptor: owns a file descriptor. Event counter: one that adds up notices.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

namespace manyworlds::inline v0::detail {

/// Closes its descriptor; -1 for none.
class unique_descriptor {
 public:
  unique_descriptor() noexcept = default;
  explicit unique_descriptor(int fd) noexcept : fd_(fd) {}
  /// Takes what a system call returned. Throws its errno as std::system_error if that is
  /// -1.
  unique_descriptor(int fd, const char* call) : fd_(fd) {
    if (fd_ < 0) throw std::system_error(errno, std::generic_category(), call);
  }
  unique_descriptor(unique_descriptor&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)) {}
  unique_descriptor& operator=(unique_descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~unique_descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }

  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }
  explicit operator bool() const noexcept { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// An eventfd, which adds up notices until they are cleared.
class event_counter {
 public:
  event_counter() : fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), "eventfd") {}

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }

  /// Gives a notice. It fails only when the counter is full, and then there is a notice
  /// already. Thread: any.
  void give() noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(fd(), &one, sizeof one);
  }
  /// Clears the notices. Returns true if there was one.
  bool clear() noexcept {
    std::uint64_t count = 0;
    return ::read(fd(), &count, sizeof count) > 0;
  }

 private:
  unique_descriptor fd_;
};

}  // namespace manyworlds::inline v0::detail
