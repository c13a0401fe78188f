// Proposals and refusals that no honest member sends.
#include "manyworlds/store/run_on.hpp"
#include "world/world_router.hpp"
#include "world_fixture.hpp"

namespace manyworlds::world_tests {

TEST_SUITE_BEGIN("world");

namespace {

propose_message some_proposal() {
  propose_message m;
  m.view.name = "pair";
  m.view.epoch = 2;
  m.view.id = 7;
  m.view.members.resize(2);
  for (process_address& each : m.view.members)
    each.endpoint = socket_address::loopback(1);
  m.rank = 1;
  m.attempt = 3;
  return m;
}

/// Begins a successor at rank 1, and has rank 0 propose another view to whatever forms
/// there without a try of its own.
task<void> propose_to_successor(world& w, world_view base) {
  world_core& core = access::core(w);
  runtime_core& rt = core.runtime();
  const link_hold way =
      co_await rt.peers().reach(base.member(0), rt.service().now() + 5s);
  successor_view inherited;
  inherited.view = base;
  inherited.view.epoch = base.epoch + 1;
  inherited.view.id = 0;
  inherited.origin = base.id;
  inherited.previous_ranks = {0, 1};
  inherited.home_rank = 1;
  inherited.home_size = 2;
  const auto next = std::make_shared<world_core>(core.runtime_ptr(), core.rendezvous(),
                                                 core.options(), std::move(inherited));
  next->begin_inheriting();
  propose_message other;
  other.view = base;
  other.view.id = 7;
  other.rank = 1;
  rt.worlds().link_message(way.get(), encode(control_message(other)));
  co_await sleep_for(100ms);
  CHECK(next->state() == world_state::forming);
  next->abandon();
}

}  // namespace

TEST_CASE("a view without an id is refused: a member would take it for none") {
  propose_message m = some_proposal();
  CHECK_NOTHROW((void)decode_control(encode(control_message(m))));
  m.view.id = 0;
  CHECK_THROWS_AS((void)decode_control(encode(control_message(m))), wire_error);
  CHECK_THROWS_AS((void)decode_view(encode(m.view)), wire_error);
}

TEST_CASE("a refusal must have a cause, or the forming would end as if nothing failed") {
  refuse_message m;
  m.attempt = 3;
  m.why = cause::rank_taken;
  CHECK_NOTHROW((void)decode_control(encode(control_message(m))));
  m.why = cause::none;
  CHECK_THROWS_AS((void)decode_control(encode(control_message(m))), wire_error);
}

TEST_CASE("a successor that is formed without tries takes no proposal") {
  pair p({.name = "pair", .form = 5s});
  const world_view base = p.wb.view();
  p.wb.fail("its survivors go on");
  auto until_drained = [](world& w) -> task<void> { co_await w.drained(); };
  p.b.run(until_drained(p.wb));
  auto there = [&](world& w) -> task<void> {
    co_await run_on(p.b.rt.service(), propose_to_successor(w, base));
  };
  p.b.run(there(p.wb));
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
