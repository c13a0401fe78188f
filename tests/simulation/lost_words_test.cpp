// Words that are lost or late, from seeds.
#include "simulation/seeds.hpp"

using namespace manyworlds_tests;

TEST_SUITE_BEGIN("simulation");

TEST_CASE(
    "a store that is lost and back at any step of forming costs no member its world") {
  for_each_seed(1, seed_count(300),
                [](std::uint64_t seed) { return run_lost_store_seed(seed); });
}

TEST_CASE(
    "the cause that a member gives a world reaches all others, however long after the "
    "end of its connections it comes") {
  for_each_seed(1, seed_count(100),
                [](std::uint64_t seed) { return run_late_words_seed(seed); });
}

TEST_SUITE_END();
