// Dispatcher: a message is given up, and the other side, which was stopped, takes it all
// the same.
#include "dispatch_fixture.hpp"

namespace manyworlds::dispatch_tests {

TEST_SUITE_BEGIN("serve");

namespace {

// More than travels unasked, less than fits on the way: a worker that has asked for it
// before it was stopped finds all of it there, with its withdrawal behind.
const std::string large(100'000, 'x');

}  // namespace

TEST_CASE(
    "a request that is given up, and taken later by a worker that was stopped, is not "
    "another call's") {
  int unsettled = 0;
  for (duration at = 0us; at <= 1ms; at += 50us) {
    CAPTURE(at.count());
    site s({.in_flight_per_worker = 2});
    worker& left = s.add("left");
    s.await_workers(1);
    const auto late = s.call("count 3 " + large, 500ms);
    s.sim.run_for(at);
    left.stop();
    const time_point stopped = s.sim.now();
    s.await(*late, 2s);
    // Answered before it stopped, by some seeds.
    if (!late->why) continue;
    CHECK(late->why.cause == cause::timed_out);
    // All of it was sent, and its withdrawal is unanswered.
    unsettled += s.sim.now() - stopped > 1400ms;
    s.sim.run_for(1s);
    const auto first = s.call("echo first");
    const auto second = s.call("echo second");
    s.sim.run_for(100ms);
    left.go_on();
    s.await(*first, 1s);
    s.await(*second, 1s);
    CHECK(first->replies == "first");
    CHECK(second->replies == "second");
    CHECK(!s.last_loss);
    REQUIRE(s.until([&] { return s.workers->workers().at(0).depth == 0; }, 1s));
  }
  CHECK(unsettled > 0);
}

TEST_CASE("a request that was given up and never came costs its slot no longer") {
  site s({.in_flight_per_worker = 1});
  worker& left = s.add("left");
  s.await_workers(1);
  for (int i = 0; i < 3; ++i) {
    std::stop_source gone;
    const auto told =
        s.call("echo " + std::string(8'000'000, 'x'), duration::max(), gone.get_token());
    s.sim.run_for(1ms);
    gone.request_stop();
    s.await(*told, 1s);
    REQUIRE(s.until([&] { return s.workers->workers().at(0).depth == 0; }, 1s));
  }
  CHECK(left.begun.empty());
}

TEST_CASE(
    "a reply that is given up, and taken later by a leader that was stopped, leaves the "
    "call its window") {
  int taken = 0, lost = 0;
  for (duration at = 0us; at <= 1ms; at += 50us) {
    CAPTURE(at.count());
    site s({.window = 1000});
    worker& left = s.add("left");
    s.await_workers(1);
    const auto told = s.call("late " + std::to_string(large.size()));
    REQUIRE(s.until([&] { return left.begun.size() == 1; }));
    s.sim.run_for(at);
    s.leader.stop();
    s.sim.run_for(2s);
    s.leader.go_on();
    s.await(*told, 2s);
    CHECK(!told->why);
    CHECK(!s.last_loss);
    const bool came = told->replies.size() > large.size();
    taken += came && left.given_up > 0;
    lost += !came;
    CHECK(told->count == (came ? 51u : 50u));
  }
  CHECK(taken > 0);
  CHECK(lost > 0);
}

TEST_SUITE_END();

}  // namespace manyworlds::dispatch_tests
