// Small collectives through pages, with trouble at a step that the seed chooses.
#include <algorithm>

#include "simulation/seeds.hpp"

using namespace manyworlds_tests;

TEST_SUITE_BEGIN("simulation");

TEST_CASE("small collectives give what they promise through kills, stops and leaves") {
  for_each_seed(1, seed_count(30),
                [](std::uint64_t seed) { return run_paged_seed(seed); });
}

TEST_CASE("and where they go through pages") {
  for_each_seed(1, seed_count(120), [](std::uint64_t seed) {
    return run_paged_seed(seed, 60, placement::together);
  });
}

TEST_CASE("a member killed at any step of small collectives fails only their world") {
  // Of one course: it forms its world until step 256, and has done 60 collectives of all
  // kinds at step 1,540. Each of the steps is tried from 1,600 seeds on.
  constexpr std::uint64_t steps = 1'600;
  const std::uint64_t kills = std::clamp<std::uint64_t>(seed_count(60), 1, steps);
  const std::uint64_t apart = (steps + kills - 1) / kills;
  for_each_seed(
      1, steps / apart,
      [](std::uint64_t step) { return run_paged_kill(step, 60, placement::together); },
      apart);
}

TEST_SUITE_END();
