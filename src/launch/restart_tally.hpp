// Restart tally: how many restarts there were, and whether there may be another one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "manyworlds/time.hpp"

namespace manyworlds::inline v0::detail {

/// Restarts within a time, or ever.
class restart_tally {
 public:
  restart_tally(std::size_t most, std::optional<duration> window)
      : most_(most), window_(window) {}

  /// Counts another restart, if there may be one.
  [[nodiscard]] bool take(time_point now) {
    if (!has_left(now)) return false;
    recent_.push_back(now);
    ++total_;
    return true;
  }
  [[nodiscard]] bool has_left(time_point now) {
    const auto is_old = [&](time_point t) { return window_ && now - t >= *window_; };
    while (!recent_.empty() && is_old(recent_.front())) recent_.pop_front();
    return recent_.size() < most_;
  }
  /// Another node has counted up to `total`.
  void note(std::uint64_t total, time_point now) {
    for (; total_ < total; ++total_) recent_.push_back(now);
  }
  [[nodiscard]] std::uint64_t total() const noexcept { return total_; }
  [[nodiscard]] std::size_t most() const noexcept { return most_; }

 private:
  std::size_t most_;
  std::optional<duration> window_;
  std::deque<time_point> recent_;
  std::uint64_t total_ = 0;
};

}  // namespace manyworlds::inline v0::detail
