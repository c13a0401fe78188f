// Worlds that are formed while things go wrong, from seeds.
#include "simulation/seeds.hpp"

using namespace manyworlds_tests;

TEST_SUITE_BEGIN("simulation");

TEST_CASE(
    "a kill, a pause, a rival or a partition at any step of forming breaks no law") {
  for_each_seed(1, seed_count(1000),
                [](std::uint64_t seed) { return run_forming_seed(seed); });
}

TEST_CASE("nor does one among members that share their host's memory") {
  for_each_seed(1, seed_count(400), [](std::uint64_t seed) {
    return run_forming_seed(seed, 60, placement::together);
  });
}

TEST_SUITE_END();
