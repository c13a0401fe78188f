// Idle cost: what a process does while it is asked for nothing.
#pragma once

#include <manyworlds/mw.hpp>

namespace mwbench {

struct idle_cost {
  double cpu_percent = 0;
  double wake_ups_per_s = 0;
  /// Over tcp these are heartbeats. In shared memory heartbeats are words, never sent.
  double segments_per_s = 0;
};

/// Measures `seconds`, which begin when the last traffic has settled.
[[nodiscard]] mw::task<idle_cost> sleep_and_look(double seconds);

}  // namespace mwbench
