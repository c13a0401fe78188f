// Owned descriptor: a file descriptor that an engine owns (event counters, epoll sets).
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

namespace manyworlds::inline v0::detail {

class owned_descriptor {
 public:
  /// Takes what a system call returned. Throws its errno as std::system_error if that is
  /// -1.
  owned_descriptor(int fd, const char* call) : fd_(fd) {
    if (fd_ < 0) throw std::system_error(errno, std::generic_category(), call);
  }
  owned_descriptor(const owned_descriptor&) = delete;
  owned_descriptor& operator=(const owned_descriptor&) = delete;
  ~owned_descriptor() { ::close(fd_); }

  [[nodiscard]] int get() const noexcept { return fd_; }

 private:
  int fd_;
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
  owned_descriptor fd_;
};

}  // namespace manyworlds::inline v0::detail
