// Watched wake: wakes a ring that sleeps, by a request of that ring.
#pragma once

#include <liburing.h>
#include <poll.h>

#include <utility>

#include "io/descriptor.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

class watched_wake {
 public:
  /// Gives a wake-up. Thread: any.
  void give() noexcept { counter_.give(); }
  [[nodiscard]] int fd() const noexcept { return counter_.fd(); }

  [[nodiscard]] bool is_watched() const noexcept { return watched_; }
  /// Prepares the request. Its completion must be reported to `note`.
  void watch(io_uring_sqe& sqe) noexcept {
    MW_ASSERT(!watched_, "one request watches for wake-ups at a time");
    io_uring_prep_poll_add(&sqe, counter_.fd(), POLLIN);
    watched_ = true;
  }
  void note() noexcept {
    MW_ASSERT(watched_, "each watch completes once");
    watched_ = false;
    poll();
  }
  /// Clears the wake-up, and remembers that it was given.
  void poll() noexcept { given_ |= counter_.clear(); }
  void forget() noexcept { given_ = false; }
  /// Returns true if one was given since the last call.
  [[nodiscard]] bool take() noexcept { return std::exchange(given_, false); }

 private:
  event_counter counter_;
  bool watched_ = false;
  bool given_ = false;
};

}  // namespace manyworlds::inline v0::detail
