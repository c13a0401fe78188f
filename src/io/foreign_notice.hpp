// Foreign notice: a descriptor that tells a foreign loop that an io_uring engine has
// something to do.
#pragma once

#include <sys/epoll.h>

#include <algorithm>
#include <vector>

#include "io/descriptor.hpp"

namespace manyworlds::inline v0::detail {

/// An epoll set of the ring's completion notices (a registered eventfd), the engine's
/// wake-ups and the descriptors that `readable` requests wait for.
///
/// The registered eventfd alone is not enough, because the ring polls eventfds too, the
/// engine's own among them. The kernel defers a notice that is caused from within another
/// eventfd's write, and with deferred task work only the first such notice of a ring ever
/// comes (Linux 6.18). The ring's own descriptor does not help either: it is readable
/// only after its completions were asked for.
class foreign_notice {
 public:
  explicit foreign_notice(int wake_ups)
      : set_(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1") {
    const int added = add(completions_.fd(), EPOLLIN) | add(wake_ups, EPOLLIN);
    if (added != 0) throw std::system_error(errno, std::generic_category(), "epoll_ctl");
  }

  [[nodiscard]] int fd() const noexcept { return set_.get(); }
  /// Returns the eventfd to register with the ring.
  [[nodiscard]] int completions() const noexcept { return completions_.fd(); }

  /// Makes the set readable while `fd` is readable. Called when a request begins. What
  /// the set refuses (a regular file) is always readable, and its request ends at once.
  ///
  /// One notice is not enough: it can be taken while the thread that made `fd` readable
  /// has not told the ring yet, and then nothing tells that the request has ended.
  void watch(int fd) {
    const bool is_new = std::ranges::find(watched_, fd) == watched_.end();
    watched_.push_back(fd);
    if (is_new) add(fd, EPOLLIN);
  }
  /// Called when a request has ended: what is readable and not asked for must not be
  /// told.
  void unwatch(int fd) noexcept {
    const auto one = std::ranges::find(watched_, fd);
    if (one == watched_.end()) return;  // it began before there was a set
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

  unique_descriptor set_;
  event_counter completions_;
  /// The descriptor of each request under way, so twice where two wait for the same one.
  std::vector<int> watched_;
};

}  // namespace manyworlds::inline v0::detail
