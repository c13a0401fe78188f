// Many dials at once, and strangers who say nothing: who waits, and for how long.
#include <doctest/doctest.h>

#include "manyworlds/coro/scope.hpp"
#include "manyworlds/store/run_on.hpp"
#include "simulation/scenario.hpp"
#include "simulation/simulated_node.hpp"
#include "simulation/world_cluster.hpp"
#include "world/control_message.hpp"
#include "world/runtime_core.hpp"

using namespace manyworlds_tests;

namespace {

/// More than are greeted at once.
constexpr int crowd_size = 600;

mw::simulation_options for_hundreds() {
  mw::simulation_options o;
  o.late_requests = false;
  return o;
}

/// One dial, which throws if it is hung up on.
mw::task<void> ask_once(mw::endpoint& from, mw::process_address whom,
                        mw::time_point deadline, int& answered) {
  mw::claim_query query;
  query.name = "unknown";
  query.rank = 0;
  (void)co_await from.ask(std::move(whom), mw::encode(query), deadline);
  ++answered;
}

mw::task<void> ask_at_once(mw::runtime_core& core, mw::process_address whom, int times,
                           int& answered) {
  const mw::time_point deadline = core.service().now() + 2s;
  auto all = [&](mw::scope& s) -> mw::task<void> {
    for (int i = 0; i < times; ++i)
      s.spawn(ask_once(core.peers(), whom, deadline, answered));
    co_return;
  };
  co_await mw::scope::run(all);
}

mw::task<void> ask(member_process& from, member_process& whom, int times, int& answered) {
  mw::runtime& rt = from.runtime();
  const mw::process_address address = mw::access::core(whom.runtime()).self();
  co_await mw::run_on(rt.service(),
                      ask_at_once(mw::access::core(rt), address, times, answered));
}

mw::task<void> say_nothing(mw::reactor& home, mw::socket_address where, int& connected) {
  mw::stream s;
  const mw::io_result result = co_await mw::stream::connect(home, where, s);
  if (!result.ok()) co_return;
  ++connected;
  std::byte never_said{};
  (void)co_await s.receive_some(std::span(&never_said, 1));
}

}  // namespace

TEST_SUITE_BEGIN("simulation");

TEST_CASE("hundreds of dials at once are all answered, none by a second try") {
  cluster all(3, for_hundreds());
  member_process& asked = all.add("asked");
  member_process& asking = all.add("asking");
  int answered = 0;
  asking.start(ask(asking, asked, crowd_size, answered));
  REQUIRE(all.run_until([&] { return asking.has_ended(); }, 5s));
  CHECK_NOTHROW(asking.check());
  CHECK(answered == crowd_size);
}

TEST_CASE("hundreds of strangers who say nothing delay a peer by less than a second") {
  cluster all(4, for_hundreds());
  member_process& asked = all.add("asked");
  member_process& peer = all.add("peer");
  simulated_node strangers(all.sim, "strangers");
  const mw::socket_address where = mw::access::core(asked.runtime()).self().endpoint;
  int connected = 0;
  for (int i = 0; i < crowd_size; ++i)
    strangers.spawn(say_nothing(strangers.home(), where, connected));
  REQUIRE(all.run_until([&] { return connected == crowd_size; }, 1s));
  int answered = 0;
  const mw::time_point begun = all.sim.now();
  peer.start(ask(peer, asked, 1, answered));
  REQUIRE(all.run_until([&] { return peer.has_ended(); }, 5s));
  CHECK_NOTHROW(peer.check());
  CHECK(answered == 1);
  CHECK(all.sim.now() - begun < 1s);
}

TEST_SUITE_END();
