// Worlds that are shrunk while things go wrong, from seeds.
#include "simulation/seeds.hpp"

using namespace manyworlds_tests;

TEST_SUITE_BEGIN("simulation");

TEST_CASE(
    "survivors agree on one successor, whatever dies, stops or is cut off at any step") {
  for_each_seed(1, seed_count(700),
                [](std::uint64_t seed) { return run_shrinking_seed(seed); });
}

TEST_CASE("and so they do where they share their host's memory") {
  for_each_seed(1, seed_count(300), [](std::uint64_t seed) {
    return run_shrinking_seed(seed, 60, placement::together);
  });
}

TEST_SUITE_END();
