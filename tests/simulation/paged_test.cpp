// Small collectives through pages, with trouble at a step that the seed chooses.
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

TEST_SUITE_END();
