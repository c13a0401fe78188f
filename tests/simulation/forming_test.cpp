// Worlds that are formed while things go wrong, from seeds.
#include "manyworlds/world/outcome.hpp"
#include "simulation/seeds.hpp"
#include "simulation/world_cluster.hpp"

using namespace manyworlds_tests;

namespace {

constexpr mw::rank_t trio = 3;

/// Forms the world again whenever it breaks, until all is over.
mw::task<void> stay_in(member_process& self, mw::rank_t rank, const bool& over,
                       std::uint64_t& epoch) {
  while (!over) {
    mw::world w(self.runtime(), *self.rendezvous,
                {.name = "trio", .rank = rank, .size = trio});
    if (!co_await mw::outcome(w)) continue;
    epoch = w.epoch();
    (void)co_await w.broken();
    epoch = 0;
  }
}

}  // namespace

TEST_SUITE_BEGIN("simulation");

TEST_CASE(
    "no member is left in a world alone when its link is cut at any step of forming") {
  constexpr std::uint64_t steps_of_forming = 400;
  for (std::uint64_t step = 1; step <= steps_of_forming; ++step) {
    CAPTURE(step);
    bool over = false;
    std::uint64_t epochs[trio] = {};
    mw::simulation_options options;
    options.shared_memory = step % 2 == 0;
    cluster all(step, options);
    all.add("leader");
    member_process& one = all.add("one");
    member_process& other = all.add("other", one);
    for (mw::rank_t r = 0; r < trio; ++r) {
      const auto at = static_cast<std::size_t>(r);
      all.at(at).start(stay_in(all.at(at), r, over, epochs[at]));
    }
    all.sim.at_step(step, [&] { all.cut(one, other); });
    all.run_for(3s);
    CHECK(epochs[0] != 0);
    CHECK(epochs[1] == epochs[0]);
    CHECK(epochs[2] == epochs[0]);
    over = true;
    const seed_report report = finished(all);
    for (const std::string& each : report.complaints) FAIL_CHECK(each);
  }
}

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
