// A proposal that is called off while the member is still connecting: it joins again at
// once.
#include "manyworlds/store/run_on.hpp"
#include "world_fixture.hpp"

namespace manyworlds::world_tests {

TEST_SUITE_BEGIN("world");

namespace {

/// Rank 0 by hand: proposes a world of three in which it never connects, and calls it
/// off.
task<void> propose_and_call_off(runtime& self, memory_store& store,
                                process_address third) {
  const std::string key = "mw/off/join/1";
  const auto first = join_record::decode(co_await store.get(key, 10s));
  co_await store.erase(key);
  link_hold l =
      co_await access::core(self).peers().reach(first.who, self.service().now() + 5s);
  propose_message proposal;
  proposal.view.name = "off";
  proposal.view.epoch = 1;
  proposal.view.id = 4711;
  proposal.view.members = {access::core(self).self(), first.who, std::move(third)};
  proposal.rank = 1;
  proposal.attempt = first.attempt;
  l->send(encode(proposal));
  l->send(encode(rollback_message{proposal.view.id, "another leads"}));
  // Well before the limit of connecting, which is 5 s.
  const auto next = join_record::decode(co_await store.get(key, 2s));
  CHECK(next.who.id == first.who.id);
  CHECK(next.attempt != first.attempt);
}

}  // namespace

TEST_CASE("a member that is told of a roll-back while it connects joins again at once") {
  memory_store store;
  node leader;
  node member;
  node third;
  world w(member.rt, store, {.name = "off", .rank = 1, .size = 3, .form = 30s});
  auto lost = member.rt.start(forming(w));
  auto errand = [](runtime& rt, memory_store& st, process_address p) -> task<void> {
    co_await run_on(rt.service(), propose_and_call_off(rt, st, std::move(p)));
  };
  leader.run(errand(leader.rt, store, access::core(third.rt).self()));
  w = world();
  CHECK(member.finish(lost).cause == cause::abandoned);
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
