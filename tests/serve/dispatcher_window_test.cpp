// Dispatcher: how many replies of a call may be unread, and who waits for it.
#include "dispatch_fixture.hpp"

namespace manyworlds::dispatch_tests {

TEST_SUITE_BEGIN("serve");

TEST_CASE("a slow reader suspends only its own handler, with a window's worth unread") {
  site s({.window = 1000});
  worker& left = s.add("left");
  s.await_workers(1);
  const auto slow = s.open("count 500");
  s.await(*slow);
  s.sim.run_for(1s);
  // A reply of one digit costs 65.
  CHECK(left.replies <= 1000 / 65);
  CHECK(left.replies >= 10);
  const auto quick = s.call("count 500");
  s.await(*quick);
  CHECK(quick->count == 500);
  CHECK(!quick->why);
  auto read = [&]() -> task<void> {
    int count = 0;
    while (auto reply = co_await slow->stream.next()) {
      CHECK(text(*reply) == std::to_string(count++));
      if (count % 10 == 0) co_await sleep_for(1ms);
    }
    CHECK(count == 500);
  };
  s.run(read());
}

TEST_CASE(
    "a reply larger than the window goes alone; one larger than the leader takes "
    "is the handler's error") {
  site s({.window = 1000, .largest_reply = 300'000});
  s.add("left");
  s.await_workers(1);
  const auto fits = s.call("big 300000");
  s.await(*fits);
  CHECK(fits->replies.size() == 300'000);
  CHECK(!fits->why);
  const auto large = s.call("big 300001");
  s.await(*large);
  CHECK(large->why.cause == cause::invalid_argument);
  CHECK(large->why.detail.find("300001 bytes") != std::string::npos);
  CHECK(s.workers->workers().size() == 1);
}

TEST_CASE("a reply of the whole window goes also behind a small one that was read") {
  for (const std::size_t window : {std::size_t{1}, std::size_t{64} * 1024}) {
    CAPTURE(window);
    site s({.window = window});
    s.add("left");
    s.await_workers(1);
    const auto told = s.call("pair " + std::to_string(window));
    s.await(*told, 5s);
    CHECK(!told->why);
    CHECK(told->count == 2);
    CHECK(told->replies.size() == 5 + window);
  }
}

TEST_CASE("a reply that is given up takes nothing of its call's window") {
  site s;
  worker& left = s.add("left");
  s.await_workers(1);
  const auto told = s.call("hasty 8000000");
  s.await(*told, 5s);
  CHECK(left.given_up == 2);
  CHECK(told->replies == "hasty");
  CHECK(!told->why);
}

TEST_CASE(
    "a shielded reply that waits for a reader ends with the call, the serving and the "
    "world") {
  enum class end { call, serving, world };
  for (const end by : {end::call, end::serving, end::world}) {
    CAPTURE(int(by));
    site s({.window = 1000});
    worker& left = s.add("left");
    s.await_workers(1);
    const auto told = s.open("stubborn 500");
    s.await(*told);
    s.sim.run_for(1s);
    CHECK(left.ended == 0);
    if (by == end::call) told->stream = reply_stream();
    if (by == end::serving) left.rt->stop();
    if (by == end::world) s.led.at("left")->fail("no more of it");
    REQUIRE(s.until([&] { return left.ended == 1; }, 5s));
    if (by != end::call) continue;
    // Its slot is free, and can be drained.
    const auto after = s.call("echo after");
    s.await(*after);
    CHECK(after->replies == "after");
    auto drain = [&]() -> task<void> {
      co_await s.workers->drain(s.workers->workers().at(0).id);
    };
    s.run(drain());
  }
}

TEST_SUITE_END();

}  // namespace manyworlds::dispatch_tests
