// What simulated processes of one host share, and how they notice each other's ends.
#include <doctest/doctest.h>

#include "manyworlds/world/outcome.hpp"
#include "simulation/scenario.hpp"
#include "simulation/world_cluster.hpp"

using namespace manyworlds_tests;

namespace {

mw::simulation_options sharing() {
  mw::simulation_options o;
  o.shared_memory = true;
  o.longest_turn = 2us;
  return o;
}

struct membership {
  bool is_up = false;
  std::optional<mw::failure> end;
};

mw::task<void> join(member_process& self, const char* name, mw::rank_t rank,
                    membership& m) {
  mw::world w(self.runtime(), *self.rendezvous,
              {.name = mw::world_name(name), .rank = rank, .size = 2});
  if (!co_await mw::outcome(w)) co_return;
  m.is_up = true;
  m.end = co_await w.broken();
}

void check(cluster& all) {
  const seed_report report = finished(all);
  for (const std::string& each : report.complaints) FAIL_CHECK(each);
}

}  // namespace

TEST_SUITE_BEGIN("simulation");

TEST_CASE("processes on one host share its memory, and no others do") {
  membership near_ends[2];
  membership far_ends[2];
  cluster all(1, sharing());
  member_process& a = all.add("a");
  member_process& beside = all.add("beside", a);
  member_process& far = all.add("far");
  a.start(join(a, "near", 0, near_ends[0]));
  beside.start(join(beside, "near", 1, near_ends[1]));
  a.start(join(a, "far", 0, far_ends[0]));
  far.start(join(far, "far", 1, far_ends[1]));
  REQUIRE(all.run_until(
      [&] {
        return near_ends[0].is_up && near_ends[1].is_up && far_ends[0].is_up &&
               far_ends[1].is_up;
      },
      5s));
  CHECK(all.shared_links() == 1);
  check(all);
}

TEST_CASE(
    "a killed local peer is missed by its liveness futex, also when its sockets say "
    "nothing") {
  for (const std::uint64_t seed : {1u, 2u, 3u, 4u, 5u}) {
    CAPTURE(seed);
    membership at_a;
    membership at_b;
    cluster all(seed, sharing());
    member_process& a = all.add("a");
    member_process& b = all.add("b", a);
    a.start(join(a, "pair", 0, at_a));
    b.start(join(b, "pair", 1, at_b));
    REQUIRE(all.run_until([&] { return at_a.is_up && at_b.is_up; }, 5s));
    REQUIRE(all.shared_links() == 1);
    all.lose_link(a, b, 60s);
    const mw::time_point killed = all.sim.now();
    all.kill(b);
    REQUIRE(all.run_until([&] { return at_a.end.has_value(); }, 1s));
    CHECK(at_a.end->cause == mw::cause::peer_died);
    CHECK(all.sim.now() - killed <= 25ms);
    check(all);
  }
}

TEST_CASE("a stopped local peer is not taken for dead") {
  membership at_a;
  membership at_b;
  cluster all(1, sharing());
  member_process& a = all.add("a");
  member_process& b = all.add("b", a);
  a.start(join(a, "pair", 0, at_a));
  b.start(join(b, "pair", 1, at_b));
  REQUIRE(all.run_until([&] { return at_a.is_up && at_b.is_up; }, 5s));
  all.stop(b, 3s);
  all.run_for(6s);
  CHECK_FALSE(at_a.end);
  CHECK_FALSE(at_b.end);
  check(all);
}

TEST_SUITE_END();
