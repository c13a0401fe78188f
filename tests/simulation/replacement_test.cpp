// A stopped member's rank: its successor does not wait for the answer of who cannot give
// one.
#include <doctest/doctest.h>

#include "manyworlds/world/outcome.hpp"
#include "simulation/scenario.hpp"
#include "simulation/world_cluster.hpp"

using namespace manyworlds_tests;

namespace {

/// Forms epochs of one world, one after the other, until `last` is up.
mw::task<void> take_part(member_process& self, mw::rank_t rank, std::uint64_t last,
                         std::uint64_t& epoch) {
  while (epoch < last) {
    mw::world w(self.runtime(), *self.rendezvous,
                {.name = "pair", .rank = rank, .size = 2});
    if (!co_await mw::outcome(w)) continue;
    epoch = w.epoch();
    (void)co_await w.broken();
  }
}

}  // namespace

TEST_SUITE_BEGIN("simulation");

TEST_CASE(
    "the successor of a stopped member is up in a tenth of a second, whatever its rank, "
    "and however long after") {
  struct course {
    mw::rank_t rank;
    mw::duration before;
  };
  // The link is over some seconds after the world.
  for (const course c : {course{0, 7s}, course{1, 7s}, course{0, 30s}, course{1, 30s}}) {
    const mw::rank_t rank = c.rank;
    CAPTURE(rank);
    CAPTURE(c.before.count());
    cluster all(5);
    member_process& other = all.add("other");
    member_process& stopped = all.add("stopped");
    std::uint64_t at_other = 0;
    std::uint64_t at_stopped = 0;
    other.start(take_part(other, 1 - rank, 2, at_other));
    stopped.start(take_part(stopped, rank, 1, at_stopped));
    REQUIRE(all.run_until([&] { return at_other == 1 && at_stopped == 1; }, 1s));
    all.stop(stopped, 60s);
    all.run_for(c.before);
    member_process& successor = all.add("successor", stopped);
    std::uint64_t at_successor = 0;
    const mw::time_point begun = all.sim.now();
    successor.start(take_part(successor, rank, 2, at_successor));
    REQUIRE(all.run_until([&] { return at_other == 2 && at_successor == 2; }, 5s));
    CHECK(all.sim.now() - begun < 100ms);
    const seed_report report = finished(all);
    for (const std::string& each : report.complaints) FAIL_CHECK(each);
  }
}

TEST_SUITE_END();
