// Random worlds, traffic and faults, from seeds.
#include "simulation/seeds.hpp"

using namespace manyworlds_tests;

TEST_SUITE_BEGIN("simulation");

TEST_CASE("laws 1 to 6, 9 and 10 hold for random worlds, traffic and faults") {
  for_each_seed(1, seed_count(1000), [](std::uint64_t seed) { return run_seed(seed); });
}

TEST_CASE("and where some members share a host, and its memory, and others do not") {
  std::size_t shared = 0;
  for_each_seed(1, seed_count(400), [&](std::uint64_t seed) {
    seed_report r = run_seed(seed, 60, placement::together);
    shared += r.shared_links;
    return r;
  });
  CHECK(shared > 0);
}

TEST_CASE("the same seed gives the same run, to the last event") {
  for (const std::uint64_t seed : {3u, 17u, 29u}) {
    const seed_report once = run_seed(seed);
    const seed_report again = run_seed(seed);
    CHECK(once.steps == again.steps);
    CHECK(once.fingerprint == again.fingerprint);
    const seed_report shared = run_seed(seed, 60, placement::together);
    CHECK(shared.fingerprint == run_seed(seed, 60, placement::together).fingerprint);
  }
}

TEST_SUITE_END();
