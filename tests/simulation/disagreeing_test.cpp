// Members that do not do the same, from seeds.
#include "simulation/seeds.hpp"

using namespace manyworlds_tests;

TEST_SUITE_BEGIN("simulation");

TEST_CASE(
    "members that disagree on a root all learn it, with what each has entered, though no "
    "other collective follows") {
  for_each_seed(1, seed_count(400),
                [](std::uint64_t seed) { return run_disagreeing_seed(seed); });
}

TEST_CASE("and so they do where their host's memory carries it") {
  for_each_seed(1, seed_count(300), [](std::uint64_t seed) {
    return run_disagreeing_seed(seed, 60, placement::together);
  });
}

TEST_SUITE_END();
