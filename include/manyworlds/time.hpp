// Time: the durations and the points in time that the library speaks of.
#pragma once

#include <chrono>

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0 {

/// Spans of time, in nanoseconds.
using duration = std::chrono::nanoseconds;

/// A point in an executor's own time: the monotonic clock, or virtual time under a
/// simulation.
using time_point = std::chrono::time_point<std::chrono::steady_clock, duration>;

/// Returns `from + span`, or the end of time: `duration::max()` means without a limit.
[[nodiscard]] constexpr time_point later(time_point from, duration span) noexcept {
  return span > time_point::max() - from ? time_point::max() : from + span;
}

}  // namespace manyworlds::inline v0
