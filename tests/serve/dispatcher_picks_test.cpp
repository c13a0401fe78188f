// Dispatcher: picks that take long together, or do what is not expected.
#include "dispatch_liars.hpp"

namespace manyworlds::dispatch_tests {

TEST_SUITE_BEGIN("serve");

TEST_CASE("law 9: calls that no worker suits are all asked about, but not in one turn") {
  int picks = 0;
  site s;
  worker& left = s.add("left");
  s.await_workers(1);
  const auto no_pick = [&](std::span<const worker_status>) {
    ++picks;
    return std::optional<std::size_t>();
  };
  for (int i = 0; i < 600; ++i) (void)s.call("echo", no_pick);
  s.sim.run_for(100ms);
  CHECK(s.workers->queued() == 600);
  const int before = picks;
  int most = 0;
  left.server.publish_load(1);
  for (int step = 0; step < 10'000 && picks < before + 600; ++step) {
    const int until_now = picks;
    (void)s.sim.step();
    most = std::max(most, picks - until_now);
  }
  CHECK(most <= 256);
  s.sim.run_for(100ms);
  CHECK(picks == before + 600);
}

TEST_CASE("law 9: a worker that tells its load without end does not buy more picks") {
  site s;
  s.lead("loud");
  process loud(s, "loud");
  event go_on;
  auto body = [&](world& w) -> task<void> {
    co_await say(w, a_hello());
    co_await go_on;
    for (std::uint64_t word = 1; word <= 100; ++word) {
      answer_head head = an_answer(answer_kind::load);
      head.word = word;
      co_await say(w, head);
    }
    co_await wait_for_end(w);
  };
  auto kept =
      loud.start(keep(*loud.rt, s.store, {.name = "loud", .rank = 1, .size = 2}, body));
  s.await_workers(1);
  int picks = 0;
  const auto no_pick = [&](std::span<const worker_status>) {
    ++picks;
    return std::optional<std::size_t>();
  };
  for (int i = 0; i < 100; ++i) (void)s.call("echo", no_pick);
  s.sim.run_for(100ms);
  s.leader.stop();
  auto open = [&]() -> task<void> {
    go_on.set();
    co_return;
  };
  auto opening = loud.start(open());
  s.sim.run_for(100ms);
  // All of it is there to be read in one turn.
  s.leader.go_on();
  const int before = picks;
  int most = 0;
  for (int step = 0; step < 10'000; ++step) {
    const int until_now = picks;
    (void)s.sim.step();
    most = std::max(most, picks - until_now);
  }
  CHECK(most <= 256);
  // And all of them are asked about the last of it.
  CHECK(picks - before >= 100);
  CHECK(s.workers->workers().at(0).load == 100);
  loud.end();
}

TEST_CASE("a pick that destroys the dispatcher ends its own call and those behind it") {
  site s({.in_flight_per_worker = 1});
  worker& left = s.add("left");
  s.await_workers(1);
  std::stop_source gone;
  const auto held = s.call("hold", duration::max(), gone.get_token());
  REQUIRE(s.until([&] { return left.begun.size() == 1; }));
  const auto destroys = [&](std::span<const worker_status>) {
    s.workers.reset();
    return std::size_t{0};
  };
  const auto first = s.call("echo first", destroys);
  const auto second = s.call("echo second");
  REQUIRE(s.until([&] { return s.workers->queued() == 2; }));
  gone.request_stop();
  for (const auto& each : {first, second}) {
    s.await(*each, 1s);
    CHECK(each->why.cause == cause::no_member_left);
  }
  s.sim.run_for(1s);
  CHECK(left.begun.size() == 1);
}

TEST_CASE("a pick that cancels its own call leaves the worker to the next one") {
  for (const bool waits : {false, true}) {
    CAPTURE(waits);
    site s({.in_flight_per_worker = 1});
    worker& left = s.add("left");
    s.await_workers(1);
    std::stop_source gone;
    std::shared_ptr<story> held;
    if (waits) {
      held = s.call("hold", duration::max(), gone.get_token());
      REQUIRE(s.until([&] { return left.begun.size() == 1; }));
    }
    scope* around = nullptr;
    const auto cancels = [&](std::span<const worker_status>) {
      around->cancel();
      return std::size_t{0};
    };
    const std::string request = "echo never";
    bool is_over = false;
    auto calls = [&]() -> task<void> {
      auto body = [&](scope& in) -> task<void> {
        around = &in;
        (void)co_await s.workers->call(request, cancels);
      };
      co_await scope::run(body);
      is_over = true;
    };
    (void)s.leader.start(calls());
    if (waits) REQUIRE(s.until([&] { return s.workers->queued() == 1; }));
    gone.request_stop();
    REQUIRE(s.until([&] { return is_over; }, 1s));
    const auto next = s.call("count 2");
    s.await(*next, 5s);
    CHECK(next->replies == "0 1");
    CHECK(std::count(left.begun.begin(), left.begun.end(), request) == 0);
  }
}

TEST_SUITE_END();

}  // namespace manyworlds::dispatch_tests
