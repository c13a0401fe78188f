// Costs: what this process has used of the machine so far.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace mwbench {

/// From the last traffic until what it left behind has been put away.
constexpr auto settling = std::chrono::seconds(1);

/// CPU time and wake-ups of this process so far.
struct usage {
  double cpu_seconds = 0;
  long wake_ups = 0;
  [[nodiscard]] static usage now() noexcept;
};

/// Memory of this process, in KiB.
struct memory_use {
  /// What no other process maps: heap, stacks, what it changed of its program.
  double own = 0;
  /// Its part of what it maps together with others: a page of two processes counts half.
  double shared = 0;
  [[nodiscard]] static memory_use now();
  friend memory_use operator-(memory_use a, memory_use b) noexcept {
    return {a.own - b.own, a.shared - b.shared};
  }
  friend memory_use operator/(memory_use a, double by) noexcept {
    return {a.own / by, a.shared / by};
  }
};

/// Segments with data that the TCP connections this process has now have sent so far:
/// while nothing else happens, its heartbeats.
[[nodiscard]] std::uint64_t segments_sent();

/// Makes room for that many open files, as far as this process may, and says so on
/// standard error. Throws std::runtime_error naming the limit if that is not enough.
void allow_open_files(std::size_t count, bool says_so);

}  // namespace mwbench
