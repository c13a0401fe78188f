// Turn times: how long a reactor's turns took.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "manyworlds/time.hpp"

namespace manyworlds::inline v0 {

/// A histogram of durations, in powers of two of a microsecond.
struct time_histogram {
  /// The first bucket holds less than a microsecond, the last 65,536 us and more.
  static constexpr std::size_t buckets = 18;

  std::array<std::uint64_t, buckets> counts{};
  duration longest{0};

  /// Returns the bucket that a duration counts in.
  [[nodiscard]] static std::size_t bucket_of(duration d) noexcept;
  /// Returns the shortest duration of a bucket; the next bucket's begin is above all of
  /// its durations.
  [[nodiscard]] static duration begin_of(std::size_t bucket) noexcept;

  [[nodiscard]] std::uint64_t count() const noexcept;
  /// Returns an upper bound of the shortest `part` (0 to 1) of all durations: the end of
  /// a bucket, or the longest. Zero if there are none.
  [[nodiscard]] duration quantile(double part) const noexcept;
};

/// The times that the library and the tasks took in turns that did something. A turn in
/// which both ran counts in both. It is real time, as the engine tells it, and includes
/// the time in which other threads had the CPU.
///
/// A task's time lasts from when it is resumed to when it waits again. It includes what
/// the library does on its behalf before it waits (a small message, the first slice of a
/// large one). Library work that is shorter than a look at the clock, such as handing a
/// small message to a task, counts as the task's.
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
