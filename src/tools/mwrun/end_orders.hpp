// End orders: which of the signals that come are orders of their own.
#pragma once

#include <signal.h>

#include <chrono>
#include <cstddef>

namespace mwrun {

/// The orders to end from one source. The first one ends a job in order, and the next one
/// kills, so that one order must not count twice.
class end_orders {
 public:
  using clock = std::chrono::steady_clock;

  /// Counts a signal. Returns whether it is one more order.
  bool count(int number, clock::time_point now = clock::now()) noexcept {
    // The kernel and a shell both tell of a terminal that is gone, and `timeout` signals
    // its child, and then the group that the child is in.
    constexpr auto one_order = std::chrono::milliseconds(100);
    if (count_ > 0 && (number == SIGHUP || now - last_ < one_order)) return false;
    last_ = now;
    ++count_;
    return true;
  }
  [[nodiscard]] std::size_t counted() const noexcept { return count_; }

 private:
  std::size_t count_ = 0;
  clock::time_point last_{};
};

}  // namespace mwrun
