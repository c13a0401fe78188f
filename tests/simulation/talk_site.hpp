// Talk site: what a process lends to its conversations.
#pragma once

#include <cstdint>
#include <functional>

#include "manyworlds/testing/simulation.hpp"
#include "simulation/watched_memory.hpp"

namespace manyworlds_tests {

struct talk_site {
  chronicle& story;
  watched_memory& memory;
  mw::simulated_random& random;
  std::function<mw::time_point()> now;
  /// The chronicle's number of this process, and of the one with that pid.
  std::size_t process = 0;
  std::function<std::size_t(std::int64_t)> process_of;
};

}  // namespace manyworlds_tests
