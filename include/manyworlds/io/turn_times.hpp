// Turn times: how long a reactor's turns took, for those who ask.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "manyworlds/coro/timer_queue.hpp"

namespace manyworlds::inline v0 {

/// How often something took how long, in powers of two of a microsecond.
struct time_histogram {
  /// The first is of less than a microsecond, the last of 65,536 and more.
  static constexpr std::size_t buckets = 18;

  std::array<std::uint64_t, buckets> counts{};
  duration longest{0};

  [[nodiscard]] static std::size_t bucket_of(duration d) noexcept;
  /// What is in a bucket took at least so long, and less than the next one's.
  [[nodiscard]] static duration begin_of(std::size_t bucket) noexcept;

  [[nodiscard]] std::uint64_t count() const noexcept;
  /// So long at most took the shortest `part` (0 to 1) of all: the end of a bucket, or
  /// the longest. Zero if there are none.
  [[nodiscard]] duration quantile(double part) const noexcept;
};

/// Of turns that did something, what the library took and what tasks took. A turn in
/// which both ran counts in both. Real time, as the engine tells it: while others had the
/// CPU as well.
///
/// A task's time is from when it is resumed to when it waits again: also what the library
/// does on its behalf before it waits (a small message, the first slice of a large one).
/// What the library does in less than a look at the clock takes, as it hands a small
/// message to a task, counts as the task's.
struct turn_times {
  time_histogram library;
  time_histogram tasks;
};

// --------------------------------------------------------------------------------------

inline std::size_t time_histogram::bucket_of(duration d) noexcept {
  const auto microseconds = static_cast<std::uint64_t>(d.count()) / 1000;
  const auto width = static_cast<std::size_t>(std::bit_width(microseconds));
  return width < buckets ? width : buckets - 1;
}

}  // namespace manyworlds::inline v0
