// Calls over workers that are stopped, frozen or drained, from seeds.
#include "simulation/seeds.hpp"

using namespace manyworlds_tests;

TEST_SUITE_BEGIN("simulation");

TEST_CASE(
    "every call is answered once and in a second and a half while workers stop, within "
    "the budget; where all stop none is asked twice; drained workers lose none") {
  for_each_seed(1, seed_count(150),
                [](std::uint64_t seed) { return run_dispatch_seed(seed); });
}

TEST_CASE("and so it is where they share their host's memory") {
  for_each_seed(1, seed_count(90), [](std::uint64_t seed) {
    return run_dispatch_seed(seed, 60, placement::together);
  });
}

TEST_SUITE_END();
