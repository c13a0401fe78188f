// Dispatcher: who answers a call, how often, and what becomes of it when workers die.
#include "dispatch_fixture.hpp"

namespace manyworlds::dispatch_tests {

TEST_SUITE_BEGIN("serve");

TEST_CASE("a call gives the worker's replies in order, then the end") {
  site s;
  s.add("left");
  s.await_workers(1);
  const auto told = s.call("count 5");
  s.await(*told);
  CHECK(told->has_stream);
  CHECK(told->replies == "0 1 2 3 4");
  CHECK(!told->why);
  CHECK(told->count == 5);
}

TEST_CASE("a call without replies gives a stream that ends at once") {
  site s;
  s.add("left");
  const auto told = s.call("none");
  s.await(*told);
  CHECK(told->has_stream);
  CHECK(told->replies.empty());
  CHECK(!told->why);
}

TEST_CASE("a call waits for the first worker") {
  site s({.patience = 10s});
  const auto told = s.call("echo hello");
  s.sim.run_for(2s);
  CHECK(!told->is_over);
  CHECK(s.workers->queued() == 1);
  s.add("left");
  s.await(*told);
  CHECK(told->replies == "hello");
}

TEST_CASE("without a worker a call ends by no_member_left after the patience given") {
  for (const duration patience : {duration(0s), duration(700ms)}) {
    site s({.patience = patience});
    s.lead("absent");
    const auto told = s.call("echo hello");
    const time_point begun = s.sim.now();
    s.await(*told);
    CHECK(told->why.cause == cause::no_member_left);
    CHECK(s.sim.now() - begun >= patience);
    CHECK(s.sim.now() - begun <= patience + 10ms);
  }
}

TEST_CASE(
    "a worker killed before the first reply: another one answers, with the same id") {
  site s;
  worker& left = s.add("left");
  worker& right = s.add("right");
  s.await_workers(2);
  const auto told = s.call("hold");
  REQUIRE(s.until([&] { return left.begun.size() + right.begun.size() == 1; }));
  worker& first = left.begun.empty() ? right : left;
  worker& second = left.begun.empty() ? left : right;
  first.kill();
  REQUIRE(s.until([&] { return !second.begun.empty(); }));
  CHECK(second.begun[0] == "hold");
  CHECK(second.ids[0] == first.ids[0]);
  CHECK(first.earlier_tries[0] == 0);
  CHECK(second.earlier_tries[0] == 1);
  CHECK(!told->is_over);
}

TEST_CASE("two workers lost in one turn: what the one had is not given to the other") {
  for (const bool left_first : {true, false}) {
    CAPTURE(left_first);
    site s;
    worker& left = s.add("left");
    worker& right = s.add("right");
    s.await_workers(2);
    const auto told = s.call("hold");
    REQUIRE(s.until([&] { return left.begun.size() + right.begun.size() == 1; }));
    auto fail_both = [&]() -> task<void> {
      s.led.at(left_first ? "left" : "right")->fail("for this test");
      s.led.at(left_first ? "right" : "left")->fail("for this test");
      co_return;
    };
    s.run(fail_both());
    // Both come back, and the call has lost one worker.
    REQUIRE(s.until([&] { return left.begun.size() + right.begun.size() == 2; }));
    const auto last = [](const worker& w) {
      return w.earlier_tries.empty() ? 0u : w.earlier_tries.back();
    };
    CHECK(std::max(last(left), last(right)) == 1);
    CHECK(!told->is_over);
  }
}

TEST_CASE("a worker killed between replies: the stream fails and says how many came") {
  site s;
  worker& left = s.add("left");
  worker& right = s.add("right");
  s.await_workers(2);
  const auto told = s.call("tick 100");
  REQUIRE(s.until([&] { return left.replies + right.replies == 3; }));
  s.sim.run_for(5ms);
  (left.begun.empty() ? right : left).kill();
  s.await(*told);
  CHECK(told->replies == "0 1 2");
  CHECK(told->why.breaks_world());
  CHECK(told->why.rank == 1);
  CHECK(told->why.text().find("3 replies of the call had come") != std::string::npos);
  s.sim.run_for(2s);
  CHECK(left.begun.size() + right.begun.size() == 1);
}

TEST_CASE("a worker killed while calls are queued: the others take what it had") {
  site s({.in_flight_per_worker = 1});
  worker& left = s.add("left");
  worker& right = s.add("right");
  s.await_workers(2);
  std::vector<std::shared_ptr<story>> told;
  for (int i = 0; i < 6; ++i) told.push_back(s.call("tick 2"));
  REQUIRE(s.until([&] { return left.begun.size() + right.begun.size() == 2; }));
  left.kill();
  int answered = 0;
  for (const auto& each : told) {
    s.await(*each);
    answered += each->replies == "0 1" && !each->why;
  }
  // At most the one that it had begun to answer is lost.
  CHECK(answered >= 5);
  CHECK(right.begun.size() >= 5);
}

TEST_CASE("a worker killed while a large request is sent to it: another one gets it") {
  site s;
  worker& left = s.add("left");
  worker& right = s.add("right");
  s.await_workers(2);
  const auto told = s.call("echo " + std::string(4'000'000, 'x'));
  // Slow enough that it is under way.
  s.sim.run_for(2ms);
  CHECK(left.begun.empty());
  const auto status = s.workers->workers();
  (status[0].depth == 1 ? left : right).kill();
  s.await(*told);
  CHECK(told->replies.size() == 4'000'000);
  CHECK(left.begun.size() + right.begun.size() == 1);
}

TEST_CASE("a call is given to no more workers than its tries") {
  site s({.tries = 2});
  std::vector<worker*> all;
  for (const char* name : {"a", "b", "c"}) all.push_back(&s.add(name));
  s.await_workers(3);
  const auto told = s.call("hold");
  for (int tries = 0; tries < 2; ++tries) {
    worker* asked = nullptr;
    REQUIRE(s.until([&] {
      for (worker* w : all) {
        if (!w->begun.empty() && w->ended == 0) asked = w;
      }
      return asked != nullptr;
    }));
    asked->kill();
    asked->ended = 1;
    std::erase(all, asked);
  }
  s.await(*told);
  CHECK(!told->has_stream);
  CHECK(told->why.breaks_world());
  CHECK(told->why.text().find("the last of 2 workers") != std::string::npos);
  CHECK(all[0]->begun.empty());
}

TEST_CASE(
    "all workers dead: calls end by no_member_left, which names the last loss; one "
    "that comes back is given calls again") {
  site s({.patience = 500ms});
  s.add("left").kill();
  worker& right = s.add("right");
  s.await_workers(1);
  const auto held = s.call("hold");
  REQUIRE(s.until([&] { return right.begun.size() == 1; }));
  right.kill();
  s.await(*held);
  CHECK(held->why.cause == cause::no_member_left);
  CHECK(held->why.detail.find("right@") != std::string::npos);
  const auto late = s.call("echo late");
  s.await(*late);
  CHECK(late->why.cause == cause::no_member_left);
  s.add("right");
  s.await_workers(1);
  const auto told = s.call("echo again");
  s.await(*told);
  CHECK(told->replies == "again");
}

TEST_CASE("every call is answered exactly once while workers are killed and come back") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    CAPTURE(seed);
    site s({.in_flight_per_worker = 4, .tries = 100, .patience = 60s}, seed);
    std::vector<worker*> now{&s.add("a"), &s.add("b"), &s.add("c")};
    std::vector<std::shared_ptr<story>> told;
    for (int i = 0; i < 200; ++i) {
      told.push_back(s.call("echo " + std::to_string(i)));
      if (i % 40 == 20) {
        const std::size_t victim = s.sim.random().below(3);
        now[victim]->kill();
        now[victim] = &s.add(std::string(1, static_cast<char>('a' + victim)));
      }
      s.sim.run_for(duration(s.sim.random().below(2'000'000)));
    }
    for (int i = 0; i < 200; ++i) {
      CAPTURE(i);
      const story& each = *told[static_cast<std::size_t>(i)];
      s.await(each);
      // After its reply the end may be lost; the reply is not repeated.
      CHECK(each.replies == std::to_string(i));
      CHECK((!each.why || each.why.breaks_world()));
    }
  }
}

TEST_SUITE_END();

}  // namespace manyworlds::dispatch_tests
