// A lane for each request, many of them given up, from seeds.
#include "simulation/seeds.hpp"

using namespace manyworlds_tests;

TEST_SUITE_BEGIN("simulation");

TEST_CASE(
    "law 10: requests that are given up, a lane for each, keep no other from its "
    "answer") {
  for_each_seed(1, seed_count(30),
                [](std::uint64_t seed) { return run_requests_seed(seed); });
}

TEST_CASE("and where both share their host's memory") {
  for_each_seed(1, seed_count(30), [](std::uint64_t seed) {
    return run_requests_seed(seed, 60, placement::together);
  });
}

TEST_SUITE_END();
