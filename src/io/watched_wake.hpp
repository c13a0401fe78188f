// Watched wake: the wake-up of a ring that sleeps, as a request of that ring.
#pragma once

#include <liburing.h>
#include <poll.h>

#include <utility>

#include "descriptor.hpp"

namespace manyworlds::inline v0 {

class watched_wake {
 public:
  /// From any thread.
  void give() noexcept { counter_.give(); }
  [[nodiscard]] int fd() const noexcept { return counter_.fd(); }

  [[nodiscard]] bool is_watched() const noexcept { return watched_; }
  /// Prepares the request whose completion is to be told to `note`.
  void watch(io_uring_sqe& sqe) noexcept {
    io_uring_prep_poll_add(&sqe, counter_.fd(), POLLIN);
    watched_ = true;
  }
  void note() noexcept {
    watched_ = false;
    look();
  }
  /// Uses the wake-up up, and keeps that it was given.
  void look() noexcept { given_ |= counter_.clear(); }
  void forget() noexcept { given_ = false; }
  /// Whether one was given since.
  [[nodiscard]] bool take() noexcept { return std::exchange(given_, false); }

 private:
  event_counter counter_;
  bool watched_ = false;
  bool given_ = false;
};

}  // namespace manyworlds::inline v0
