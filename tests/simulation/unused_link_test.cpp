// Links that nothing uses, and a pause: what was said on a link is heard before it ends.
#include <doctest/doctest.h>

#include "manyworlds/store/run_on.hpp"
#include "manyworlds/world/outcome.hpp"
#include "simulation/scenario.hpp"
#include "simulation/world_cluster.hpp"
#include "world/runtime_core.hpp"

using namespace manyworlds_tests;

namespace {

/// It is longer than an unused link is kept and its peer is waited for.
constexpr mw::duration pause_length = 10s;
/// Whether the beat or the read comes first after a pause is a matter of the seed.
constexpr std::uint64_t seeds = 20;

struct course {
  bool up = false;
  mw::failure broken_by;
};

mw::task<void> stay(member_process& self, mw::rank_t rank, course& told) {
  mw::world w(self.runtime(), *self.rendezvous,
              {.name = "pair", .rank = rank, .size = 2});
  co_await w;
  told.up = true;
  // `fail_world` finds it there.
  self.worlds["pair"] = &w;
  told.broken_by = co_await w.broken();
  self.worlds.erase("pair");
}

mw::endpoint& endpoint_of(member_process& m) {
  return mw::access::core(m.runtime()).peers();
}

mw::link* link_between(member_process& from, member_process& to) {
  return endpoint_of(from).link_to(endpoint_of(to).self().id);
}

mw::task<void> reach_on_service(mw::runtime_core& core, mw::process_address whom,
                                mw::link_hold& hold) {
  hold = co_await core.peers().reach(whom, core.service().now() + 1s);
}

mw::task<void> release_on_service(mw::link_hold& hold) {
  hold = mw::link_hold();
  co_return;
}

mw::task<void> reach(member_process& from, member_process& whom, mw::link_hold& hold) {
  mw::runtime_core& core = mw::access::core(from.runtime());
  co_await mw::run_on(core.service(),
                      reach_on_service(core, endpoint_of(whom).self(), hold));
}

mw::task<void> release(member_process& from, mw::link_hold& hold) {
  co_await mw::run_on(from.runtime().service(), release_on_service(hold));
}

}  // namespace

TEST_SUITE_BEGIN("simulation");

TEST_CASE(
    "section 9: when its world is failed after a pause a member says so before its link "
    "ends") {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    CAPTURE(seed);
    cluster all(seed);
    member_process& failing = all.add("failing");
    member_process& other = all.add("other");
    course at_failing;
    course at_other;
    failing.start(stay(failing, 0, at_failing));
    other.start(stay(other, 1, at_other));
    REQUIRE(all.run_until([&] { return at_failing.up && at_other.up; }, 1s));
    all.freeze(pause_length);
    all.run_for(pause_length / 2);
    // A paused process runs none of it: it is what its user does first when it goes on,
    // before the service thread has had a turn.
    all.fail_world("pair");
    const auto other_knows = [&] { return static_cast<bool>(at_other.broken_by); };
    REQUIRE(all.run_until(other_knows, pause_length));
    CHECK(at_other.broken_by.cause == mw::cause::broken_by_user);
    const seed_report report = finished(all);
    for (const std::string& each : report.complaints) FAIL_CHECK(each);
  }
}

TEST_CASE("a link that the peer has declined to end lives on after a pause") {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    CAPTURE(seed);
    mw::simulation_options network;
    network.latency = 10ms;
    cluster all(seed, network);
    member_process& idle = all.add("idle");
    member_process& user = all.add("user");
    mw::link_hold hold;
    user.start(reach(user, idle, hold));
    REQUIRE(all.run_until([&] { return link_between(idle, user) && hold; }, 1s));
    // It offers the end; the answer is under way when all is paused.
    REQUIRE(all.run_until([&] { return !link_between(idle, user)->is_usable(); }, 10s));
    all.run_for(15ms);
    REQUIRE_FALSE(link_between(idle, user)->is_usable());
    all.freeze(pause_length);
    all.run_for(pause_length + 1s);
    CHECK(hold->is_up());
    CHECK(link_between(idle, user) != nullptr);
    user.start(release(user, hold));
    all.run_for(100ms);
    const seed_report report = finished(all);
    for (const std::string& each : report.complaints) FAIL_CHECK(each);
  }
}

TEST_CASE("a link that nothing uses ends after a pause too") {
  cluster all(1);
  member_process& a = all.add("a");
  member_process& b = all.add("b");
  mw::link_hold hold;
  b.start(reach(b, a, hold));
  REQUIRE(all.run_until([&] { return link_between(a, b) && hold; }, 1s));
  b.start(release(b, hold));
  all.freeze(pause_length);
  all.run_for(pause_length + 8s);
  CHECK(link_between(a, b) == nullptr);
  CHECK(link_between(b, a) == nullptr);
}

TEST_CASE("a link is ended though its peer does not answer the offer of its end") {
  cluster all(1);
  member_process& a = all.add("a");
  member_process& b = all.add("b");
  mw::link_hold hold;
  b.start(reach(b, a, hold));
  REQUIRE(all.run_until([&] { return link_between(a, b) && hold; }, 1s));
  all.stop(b, 60s);
  all.run_for(8s);
  CHECK(link_between(a, b) == nullptr);
  all.run_for(60s);
  b.start(release(b, hold));
  all.run_for(100ms);
}

TEST_SUITE_END();
