// Foreign notice: one descriptor that tells a foreign loop that an io_uring engine has
// something to do.
#pragma once

#include <sys/epoll.h>

#include <array>

#include "descriptor.hpp"

namespace manyworlds::inline v0 {

/// An epoll set of the ring's completion notices (a registered eventfd), the engine's
/// wake-ups and the descriptors that `readable` requests wait for.
///
/// The registered eventfd alone would do, but for eventfds that are polled by the ring,
/// the engine's own among them: a notice caused from within another eventfd's write is
/// deferred by the kernel, and with deferred task work only the first such notice of a
/// ring ever comes (Linux 6.18). Nor is the ring's own descriptor of use: it is readable
/// only after its completions were asked for.
class foreign_notice {
 public:
  explicit foreign_notice(int wake_ups)
      : set_(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1") {
    const int added = add(completions_.fd(), EPOLLIN) | add(wake_ups, EPOLLIN);
    if (added != 0) throw std::system_error(errno, std::generic_category(), "epoll_ctl");
  }

  [[nodiscard]] int fd() const noexcept { return set_.get(); }
  /// To be registered with the ring.
  [[nodiscard]] int completions() const noexcept { return completions_.fd(); }

  /// Has the set tell once when `fd` is readable. What it refuses (a regular file) is
  /// always readable, and its request has ended already.
  void watch(int fd) noexcept {
    watches_ = true;
    if (change(EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLONESHOT) != 0)
      add(fd, EPOLLIN | EPOLLONESHOT);
  }

  void clear() noexcept {
    completions_.clear();
    // What is still readable but no longer asked for is told once, and must be taken out.
    std::array<epoll_event, 64> told;
    if (watches_) ::epoll_wait(set_.get(), told.data(), static_cast<int>(told.size()), 0);
  }

 private:
  int change(int how, int fd, std::uint32_t events) noexcept {
    epoll_event interest{};
    interest.events = events;
    return ::epoll_ctl(set_.get(), how, fd, &interest);
  }
  int add(int fd, std::uint32_t events) noexcept {
    return change(EPOLL_CTL_ADD, fd, events);
  }

  owned_descriptor set_;
  event_counter completions_;
  bool watches_ = false;
};

}  // namespace manyworlds::inline v0
