// Accept: cancelled at any moment, also while a world is being formed.
#include "dispatch_fixture.hpp"

namespace manyworlds::dispatch_tests {

TEST_SUITE_BEGIN("serve");

TEST_CASE(
    "accepting may be cancelled at any moment of a forming: nothing uses it afterwards, "
    "and who was not met is met by the next that accepts") {
  int was_met = 0;
  for (int i = 0; i < 40; ++i) {
    CAPTURE(i);
    site s;
    process front(s, "front");
    process peer(s, "peer");
    const auto ends = [](world&) -> task<void> { co_return; };
    auto connected = peer.start(connect(*peer.rt, s.store, {.service = "decode"}, ends));
    std::stop_source gone;
    auto given_up = [&]() -> task<void> {
      auto accepts = accept(*front.rt, s.store, {.service = "decode"}, ends);
      try {
        co_await stop_on(std::move(accepts), gone.get_token());
      } catch (const stopped&) {
        co_return;
      }
    };
    auto first = front.start(given_up());
    for (int step = 0; step < 2 * i * i; ++step) (void)s.sim.step();
    was_met += connected.is_ready();
    gone.request_stop();
    REQUIRE(s.until([&] { return first.is_ready(); }));
    first.get();
    std::stop_source enough;
    auto second = front.start(
        accept(*front.rt, s.store, {.service = "decode"}, ends, enough.get_token()));
    REQUIRE(s.until([&] { return connected.is_ready(); }));
    connected.get();
    enough.request_stop();
    REQUIRE(s.until([&] { return second.is_ready(); }));
    second.get();
    // Their tasks refer to what is destroyed next.
    peer.end();
    front.end();
  }
  // From before it has begun to after it has ended.
  CHECK(was_met > 0);
  CHECK(was_met < 40);
}

TEST_SUITE_END();

}  // namespace manyworlds::dispatch_tests
