// Foreign notice: one descriptor that tells a foreign loop that an io_uring engine has
// something to do.
#pragma once

#include <sys/epoll.h>

#include <algorithm>
#include <vector>

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

  /// Has the set tell as long as `fd` is readable: for a request that begins. What the
  /// set refuses (a regular file) is always readable, and its request ends at once.
  ///
  /// Told once would not do: a notice can be taken while the thread that made `fd`
  /// readable has not told the ring yet, and then nobody tells that the request has
  /// ended.
  void watch(int fd) {
    const bool is_new = std::ranges::find(watched_, fd) == watched_.end();
    watched_.push_back(fd);
    if (is_new) add(fd, EPOLLIN);
  }
  /// For a request that has ended: what is readable and not asked for must not be told.
  void unwatch(int fd) noexcept {
    const auto one = std::ranges::find(watched_, fd);
    if (one == watched_.end()) return;  // begun before there was a set
    *one = watched_.back();
    watched_.pop_back();
    if (std::ranges::find(watched_, fd) == watched_.end())
      ::epoll_ctl(set_.get(), EPOLL_CTL_DEL, fd, nullptr);
  }

  void clear() noexcept { completions_.clear(); }

 private:
  int add(int fd, std::uint32_t events) noexcept {
    epoll_event interest{};
    interest.events = events;
    return ::epoll_ctl(set_.get(), EPOLL_CTL_ADD, fd, &interest);
  }

  owned_descriptor set_;
  event_counter completions_;
  /// Of each request under way, so twice where two wait for the same.
  std::vector<int> watched_;
};

}  // namespace manyworlds::inline v0
