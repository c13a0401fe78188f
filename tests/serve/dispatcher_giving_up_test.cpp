// Dispatcher: stops, deadlines, dropped streams, and ends at any time.
#include "dispatch_fixture.hpp"

namespace manyworlds::dispatch_tests {

TEST_SUITE_BEGIN("serve");

namespace {

task<void> next_into(reply_stream& from, std::optional<std::string>& reply) {
  auto got = co_await from.next();
  reply.reset();
  if (got) reply = text(*got);
}

}  // namespace

TEST_CASE("a stop reaches the call's handler, before its first reply and after") {
  for (const std::string what : {"hold", "first"}) {
    CAPTURE(what);
    site s;
    worker& left = s.add("left");
    s.await_workers(1);
    std::stop_source gone;
    const auto told = s.call(what, duration::max(), gone.get_token());
    REQUIRE(s.until([&] { return left.begun.size() == 1; }));
    s.sim.run_for(10ms);
    CHECK(!told->is_over);
    gone.request_stop();
    s.await(*told);
    CHECK(told->why.cause == cause::cancelled);
    CHECK(told->replies == (what == "first" ? "first" : ""));
    REQUIRE(s.until([&] { return left.ended == 1; }, 1s));
    CHECK(left.stopped_early == 1);
    // Its world is up, and its slot free again.
    REQUIRE(s.until([&] { return s.workers->workers().at(0).depth == 0; }, 1s));
    const auto after = s.call("echo after");
    s.await(*after);
    CHECK(after->replies == "after");
  }
}

TEST_CASE("a stop from another thread ends a call") {
  site s;
  worker& left = s.add("left");
  s.await_workers(1);
  std::stop_source gone;
  const auto told = s.call("hold", duration::max(), gone.get_token());
  REQUIRE(s.until([&] { return left.begun.size() == 1; }));
  std::thread([&] { gone.request_stop(); }).join();
  s.await(*told);
  CHECK(told->why.cause == cause::cancelled);
  REQUIRE(s.until([&] { return left.ended == 1; }, 1s));
}

TEST_CASE("a call that is stopped before it starts is sent to no worker") {
  site s;
  worker& left = s.add("left");
  s.await_workers(1);
  std::stop_source gone;
  gone.request_stop();
  const auto told = s.call("echo hello", duration::max(), gone.get_token());
  s.await(*told);
  CHECK(told->why.cause == cause::cancelled);
  s.sim.run_for(10ms);
  CHECK(left.begun.empty());
}

TEST_CASE("the deadline of a call travels to the worker, and ends the handler too") {
  site s;
  worker& left = s.add("left");
  s.await_workers(1);
  const time_point begun = s.sim.now();
  const auto told = s.call("first", 100ms);
  s.await(*told);
  CHECK(told->replies == "first");
  CHECK(told->why.cause == cause::timed_out);
  CHECK(s.sim.now() - begun >= 100ms);
  CHECK(s.sim.now() - begun <= 101ms);
  REQUIRE(left.time_left.at(0));
  CHECK(*left.time_left[0] <= 100ms);
  CHECK(*left.time_left[0] >= 98ms);
  REQUIRE(s.until([&] { return left.ended == 1; }, 10ms));
  CHECK(left.stopped_early == 1);
}

TEST_CASE("the worker ends a handler at its deadline also when the leader is silent") {
  site s;
  worker& left = s.add("left");
  s.await_workers(1);
  (void)s.call("first", 100ms);
  REQUIRE(s.until([&] { return left.begun.size() == 1; }));
  s.leader.stop();
  s.sim.run_for(110ms);
  CHECK(left.ended == 1);
  CHECK(left.stopped_early == 1);
  s.leader.go_on();
  REQUIRE(s.until([&] { return s.workers->workers().at(0).depth == 0; }, 1s));
}

TEST_CASE(
    "no handler begins for a call if its time passes while it is queued, or while its "
    "large request is sent") {
  site s({.in_flight_per_worker = 1});
  worker& left = s.add("left");
  s.await_workers(1);
  const auto large = s.call("echo " + std::string(8'000'000, 'x'), 3ms);
  const auto queued = s.call("echo queued", 2ms);
  s.await(*large);
  s.await(*queued);
  CHECK(large->why.cause == cause::timed_out);
  CHECK(queued->why.cause == cause::timed_out);
  s.sim.run_for(10ms);
  CHECK(left.begun.empty());
  const auto after = s.call("echo after");
  s.await(*after);
  CHECK(after->replies == "after");
}

TEST_CASE("a stream that is dropped cancels its call at the worker") {
  site s;
  worker& left = s.add("left");
  s.await_workers(1);
  const auto told = s.open("first");
  s.await(*told);
  REQUIRE(told->has_stream);
  s.sim.run_for(10ms);
  CHECK(left.ended == 0);
  told->stream = reply_stream();
  REQUIRE(s.until([&] { return left.ended == 1; }, 10ms));
  REQUIRE(s.until([&] { return s.workers->workers().at(0).depth == 0; }, 10ms));
}

TEST_CASE("giving up a wait for a reply leaves the call as it is") {
  site s;
  s.add("left");
  s.await_workers(1);
  const auto told = s.open("tick 3");
  s.await(*told);
  auto wait = [&]() -> task<void> {
    CHECK(text((co_await told->stream.next()).value()) == "0");
    auto late = co_await outcome(told->stream.next().within(1ms));
    CHECK(late.error().cause == cause::timed_out);
    std::stop_source gone;
    std::optional<std::string> reply;
    auto cancelled = co_await when_any(next_into(told->stream, reply), sleep_for(1ms));
    CHECK(std::get<1>(cancelled).has_value());
    gone.request_stop();
    auto stopped = co_await outcome(told->stream.next().stop(gone.get_token()));
    CHECK(stopped.error().cause == cause::cancelled);
    CHECK(text((co_await told->stream.next()).value()) == "1");
    CHECK(text((co_await told->stream.next().within(5s)).value()) == "2");
    CHECK(!co_await told->stream.next());
    CHECK(!co_await told->stream.next());
    CHECK(told->stream.received() == 3);
  };
  s.run(wait());
}

TEST_CASE("two cannot wait for the next reply of one stream") {
  site s;
  s.add("left");
  s.await_workers(1);
  const auto told = s.open("first");
  s.await(*told);
  auto wait = [&]() -> task<void> {
    std::optional<std::string> reply;
    co_await next_into(told->stream, reply);
    CHECK(reply == "first");
    auto both = co_await outcome(
        when_all(next_into(told->stream, reply), next_into(told->stream, reply)));
    CHECK(both.error().cause == cause::invalid_argument);
  };
  s.run(wait());
}

TEST_CASE("a request larger than the worker takes is an error of that call alone") {
  site s;
  s.add("left", {.largest_request = 1000});
  s.await_workers(1);
  const auto large = s.call("echo " + std::string(1000, 'x'));
  s.await(*large);
  CHECK(large->why.cause == cause::invalid_argument);
  const auto fits = s.call("echo " + std::string(995, 'x'));
  s.await(*fits);
  CHECK(fits->replies.size() == 995);
}

TEST_CASE("the break of its world stops a handler, and its token tells other threads") {
  site s;
  worker& left = s.add("left");
  s.await_workers(1);
  (void)s.call("hold");
  REQUIRE(s.until([&] { return left.begun.size() == 1; }));
  s.leader.kill();
  REQUIRE(s.until([&] { return left.ended == 1; }, 10s));
  CHECK(left.stopped_early == 1);
}

TEST_CASE("the dispatcher may be destroyed with calls queued, asked and being read") {
  site s({.in_flight_per_worker = 2});
  worker& left = s.add("left");
  s.await_workers(1);
  const auto asked = s.call("hold");
  const auto read = s.call("first");
  const auto queued = s.call("echo queued");
  REQUIRE(s.until([&] { return left.begun.size() == 2 && read->count == 1; }));
  CHECK(s.workers->queued() == 1);
  auto destroy = [&]() -> task<void> {
    s.workers.reset();
    co_return;
  };
  s.run(destroy());
  for (const auto& each : {asked, read, queued}) {
    s.await(*each, 1s);
    CHECK(each->why.cause == cause::no_member_left);
  }
  CHECK(read->replies == "first");
  REQUIRE(s.until([&] { return left.ended == 2; }, 1s));
  CHECK(left.stopped_early == 2);
}

TEST_CASE("a runtime that stops ends calls and servings at every stage") {
  for (int turns = 0; turns < 60; turns += 3) {
    CAPTURE(turns);
    site s({.in_flight_per_worker = 2, .patience = 1h});
    worker& left = s.add("left");
    if (turns > 0) s.await_workers(1);
    std::vector<std::shared_ptr<story>> told;
    told.push_back(s.call("tick 50"));
    told.push_back(s.call("echo " + std::string(3'000'000, 'x')));
    told.push_back(s.call("first"));
    told.push_back(s.open("first"));
    for (int i = 0; i < turns * turns; ++i) (void)s.sim.step();
    // What is left is checked by the fixture: all ends.
    if (turns % 2 == 0) {
      s.leader.rt->stop();
      s.sim.run_for(1s);
    }
    left.rt->stop();
  }
}

TEST_SUITE_END();

}  // namespace manyworlds::dispatch_tests
