// Sessions with workers that are killed, stopped and cut off, from seeds.
#include "simulation/seeds.hpp"

using namespace manyworlds_tests;

TEST_SUITE_BEGIN("simulation");

TEST_CASE(
    "S-a to S-e: calls are in order, end on all workers, are told once, take what they "
    "name and fail for a reason while workers die and are replaced (disco A61)") {
  for_each_seed(1, seed_count(300),
                [](std::uint64_t seed) { return run_sessions_seed(seed); });
}

TEST_CASE("and so they are where controller and workers share their host's memory") {
  for_each_seed(1, seed_count(100), [](std::uint64_t seed) {
    return run_sessions_seed(seed, 60, placement::together);
  });
}

TEST_SUITE_END();
