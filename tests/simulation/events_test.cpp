// What subscribers are told of a member that is silent for a while.
#include <doctest/doctest.h>

#include "manyworlds/serve/world_manager.hpp"
#include "simulation/scenario.hpp"
#include "simulation/world_cluster.hpp"

using namespace manyworlds_tests;

namespace {

mw::task<void> stay(member_process& self, mw::rank_t rank) {
  mw::world w(self.runtime(), *self.rendezvous,
              {.name = "pair", .rank = rank, .size = 2});
  co_await w;
  (void)co_await w.broken();
}

mw::task<void> collect(mw::world_events from, std::vector<mw::world_event>& into) {
  for (;;) into.push_back(co_await from.next());
}

}  // namespace

TEST_SUITE_BEGIN("simulation");

TEST_CASE("a member that pauses is told of as suspect and recovered; then as broken") {
  cluster all(7);
  member_process& a = all.add("a");
  member_process& b = all.add("b");
  const mw::world_manager manager(a.runtime(), *a.rendezvous);
  std::vector<mw::world_event> told;
  a.start(collect(manager.events(), told));
  a.start(stay(a, 0));
  b.start(stay(b, 1));
  REQUIRE(all.run_until([&] { return told.size() == 1; }, 1s));
  all.stop(b, 2s);
  REQUIRE(all.run_until([&] { return told.size() == 3; }, 4s));
  all.stop(b, 10s);
  REQUIRE(all.run_until([&] { return told.size() == 5; }, 10s));
  using kind = mw::world_event_kind;
  const kind expected[] = {kind::formed, kind::suspect, kind::recovered, kind::suspect,
                           kind::broken};
  for (std::size_t i = 0; i < 5; ++i) {
    CAPTURE(i);
    CHECK(told[i].kind == expected[i]);
    CHECK(told[i].world == mw::world_name("pair"));
    CHECK(told[i].epoch == 1);
    CHECK(told[i].rank == (i == 0 ? 0 : 1));
  }
  CHECK(told[4].cause == mw::cause::silent_peer);
}

TEST_SUITE_END();
