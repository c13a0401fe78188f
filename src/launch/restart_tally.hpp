// Restart tally: how many restarts there were, and whether there may be another one.
#pragma once

#include <algorithm>
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
    ++total_;
    add(1, now);
    return true;
  }
  [[nodiscard]] bool has_left(time_point now) const { return recent(now) < most_; }
  /// Another node has counted up to `total`, of which `recent` count still: a node that
  /// comes late hears of old ones, too.
  void note(std::uint64_t total, std::uint64_t recent, time_point now) {
    if (total <= total_) return;
    const std::uint64_t unknown = total - total_;
    total_ = total;
    add(std::min({unknown, recent, std::uint64_t{most_}}), now);
  }
  [[nodiscard]] std::uint64_t total() const noexcept { return total_; }
  /// Returns how many count still; those beyond the limit are left out.
  [[nodiscard]] std::uint64_t recent(time_point now) const {
    std::uint64_t count = 0;
    for (const batch& each : batches_) {
      if (!window_ || now - each.at < *window_) count += each.count;
    }
    return std::min(count, std::uint64_t{most_});
  }

 private:
  struct batch {
    time_point at;
    std::uint64_t count;
  };

  void add(std::uint64_t count, time_point now) {
    if (count == 0) return;
    batches_.push_back({now, count});
    // Those before the last `most_` decide nothing.
    if (batches_.size() > most_) batches_.pop_front();
  }

  std::size_t most_;
  std::optional<duration> window_;
  std::deque<batch> batches_;
  std::uint64_t total_ = 0;
};

}  // namespace manyworlds::inline v0::detail
