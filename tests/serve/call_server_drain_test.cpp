// Call server: a worker that leaves in order, and a leader that does.
#include "dispatch_fixture.hpp"

namespace manyworlds::dispatch_tests {

TEST_SUITE_BEGIN("serve");

namespace {

/// Begins to drain that worker; true when it has ended.
std::shared_ptr<bool> drain(worker& w) {
  auto is_drained = std::make_shared<bool>(false);
  auto draining = [](worker& w, std::shared_ptr<bool> told) -> task<void> {
    co_await w.server.drain();
    *told = true;
  };
  (void)w.start(draining(w, is_drained));
  return is_drained;
}

}  // namespace

TEST_CASE(
    "a worker that drains ends the calls it has begun, gets no new ones and leaves; no "
    "call notices") {
  site s({.tries = 1});
  worker& left = s.add("left");
  worker& right = s.add("right");
  s.await_workers(2);
  const auto begun = s.call("tick 50");
  const auto other = s.call("tick 50");
  REQUIRE(s.until([&] { return left.begun.size() == 1 && right.begun.size() == 1; }));
  const auto is_drained = drain(left);
  s.sim.run_for(20ms);
  CHECK(!*is_drained);
  CHECK(s.workers->workers()[0].is_draining);
  std::vector<std::shared_ptr<story>> told;
  for (int i = 0; i < 10; ++i) told.push_back(s.call("echo x"));
  for (const auto& each : told) s.await(*each);
  CHECK(left.begun.size() == 1);
  CHECK(right.begun.size() == 11);
  s.await(*begun);
  s.await(*other);
  CHECK(begun->count == 50);
  CHECK(!begun->why);
  CHECK(s.until([&] { return *is_drained; }, 1s));
  CHECK(s.until([&] { return s.workers->workers().size() == 1; }, 1s));
  CHECK(s.last_loss.cause == cause::closed);
  // It does not come back by itself; another one under its name is served.
  s.sim.run_for(10s);
  CHECK(s.workers->workers().size() == 1);
  s.add("left");
  s.await_workers(2);
}

TEST_CASE("a worker with nothing open is drained at once") {
  site s;
  worker& left = s.add("left");
  s.await_workers(1);
  const auto is_drained = drain(left);
  CHECK(s.until([&] { return *is_drained; }, 100ms));
  // Also one that never served, and a second time.
  worker& late = s.add("late");
  CHECK(s.until([&, again = drain(late)] { return *again; }, 100ms));
  CHECK(s.until([&, again = drain(left)] { return *again; }, 100ms));
}

TEST_CASE(
    "calls that cross the notice of draining are given back and asked of others, and "
    "that is no try") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    site s({.tries = 1}, seed);
    std::vector<worker*> now{&s.add("a"), &s.add("b"), &s.add("c")};
    s.await_workers(3);
    std::vector<std::shared_ptr<story>> told;
    for (int i = 0; i < 120; ++i) {
      told.push_back(s.call(i % 3 ? "tick 4" : "echo " + std::string(3000, 'x')));
      if (i % 30 == 15) {
        const std::size_t victim = s.sim.random().below(3);
        const auto is_drained = drain(*now[victim]);
        REQUIRE(s.until([&] { return *is_drained; }, 10s));
        now[victim] = &s.add(std::string(1, static_cast<char>('a' + victim)));
      }
      s.sim.run_for(duration(s.sim.random().below(500'000)));
    }
    for (const auto& each : told) {
      s.await(*each);
      CAPTURE(each->why.text());
      CHECK(!each->why);
    }
  }
}

TEST_CASE("a worker drains by itself, and ends early, when its runtime is stopped") {
  site s({.tries = 1});
  worker& left = s.add("left");
  worker& right = s.add("right");
  s.await_workers(2);
  const auto told = s.call("tick 50");
  REQUIRE(s.until([&] { return told->count >= 2; }));
  worker& asked = left.begun.empty() ? right : left;
  const time_point begun = s.sim.now();
  asked.rt->stop(30s);
  s.await(*told);
  CHECK(told->count == 50);
  CHECK(!told->why);
  CHECK(s.until([&] { return s.workers->workers().size() == 1; }, 1s));
  CHECK(s.sim.now() - begun < 3s);
}

TEST_CASE(
    "a leader takes no new calls, ends those it has, and leaves its workers when its "
    "runtime is stopped") {
  site s;
  worker& left = s.add("left");
  s.await_workers(1);
  const auto told = s.call("tick 50");
  REQUIRE(s.until([&] { return told->count >= 2; }));
  s.leader.rt->stop(30s);
  const auto refused = s.call("echo late");
  s.await(*refused);
  CHECK(refused->why.cause == cause::closed);
  s.await(*told);
  CHECK(told->count == 50);
  CHECK(!told->why);
  CHECK(s.until([&] { return s.workers->workers().empty(); }, 1s));
  CHECK(left.begun.size() == 1);
}

TEST_SUITE_END();

}  // namespace manyworlds::dispatch_tests
