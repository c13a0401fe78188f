// World events: when those who wait for them are resumed, and their end.
#include "world_fixture.hpp"

namespace manyworlds::world_tests {

TEST_SUITE_BEGIN("world");

namespace {

task<enum cause> why_no_more_events(world_events of) {
  const auto got = co_await outcome(of.next());
  co_return got.error().cause;
}

}  // namespace

TEST_CASE(
    "who waits for an event is resumed when those who tell it no longer hold a lock") {
  node listener;
  event_hub<world_event> hub;
  const world_events of(hub.subscribe(1));
  auto waiting = listener.rt.start(of.next());
  auto nothing = []() -> task<void> { co_return; };
  // The first waits by now.
  listener.run(nothing());
  channel_waiters told;
  world_event e;
  e.epoch = 7;
  hub.tell(e, told);
  CHECK(!waiting.wait_for(50ms));
  told.resume_all();
  CHECK(listener.finish(waiting).epoch == 7);
}

TEST_CASE("law 9: who waits for the events of a runtime that ends is told so") {
  node listener;
  auto ending = std::make_unique<node>();
  const world_events of(access::core(ending->rt).events().subscribe(1));
  auto waiting = listener.rt.start(why_no_more_events(of));
  CHECK(!waiting.wait_for(50ms));
  ending.reset();
  CHECK(listener.finish(waiting) == cause::runtime_stopped);
  CHECK(listener.run(why_no_more_events(of)) == cause::runtime_stopped);
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
