// Idle cost: what a process does while nobody asks anything of it.
#pragma once

#include <manyworlds/mw.hpp>

namespace mwbench {

struct idle_cost {
  double cpu_percent = 0;
  double wake_ups_per_s = 0;
  /// Over tcp: heartbeats. In shared memory they are words that nobody sends.
  double segments_per_s = 0;
};

/// Of so many seconds, which begin when the last traffic has settled.
[[nodiscard]] mw::task<idle_cost> sleep_and_look(double seconds);

}  // namespace mwbench
