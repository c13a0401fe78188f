// How a runtime ends while its tasks wait for what does not come: bounded, and said to
// the peers at once.
#include <atomic>
#include <memory>
#include <optional>
#include <stop_token>
#include <thread>

#include "manyworlds/testing/simulation.hpp"
#include "support/eventually.hpp"
#include "world_fixture.hpp"

namespace manyworlds::world_tests {

TEST_SUITE_BEGIN("world");

namespace {

/// Two members, of which the first's runtime can be ended.
struct ending_pair {
  ending_pair() {
    first = std::make_unique<node>();
    form_two({.name = "pair", .form = 10s}, store, *first, w, other, left);
  }

  /// Until the task that enters a collective of `w` waits in it.
  void wait_until_entered() {
    REQUIRE(testing::eventually(
        [&] { return first->rt.dump().find("barrier") != std::string::npos; }));
  }
  /// The other member hears at once, and of this one: it never entered.
  void check_told() {
    const failure f = other.run(left.broken(), 5s);
    CAPTURE(f.text());
    CHECK(f.cause == cause::runtime_stopped);
    CHECK(f.rank == 0);
    CHECK(f.detail.find("runtime") != std::string::npos);
  }

  memory_store store;
  node other;
  world left;
  std::unique_ptr<node> first;
  world w;
};

task<void> enter(world& w) { co_await w.barrier(); }
task<void> enter_shielded(world& w) { co_await shield(w.barrier()); }

}  // namespace

TEST_CASE(
    "a runtime that is destroyed while a task waits in a collective tells the others at "
    "once") {
  ending_pair p;
  auto entered = p.first->rt.start(enter(p.w));
  p.wait_until_entered();
  const auto begun = clock::now();
  p.first = nullptr;
  CHECK(clock::now() - begun < 5s);
  CHECK(entered.is_ready());
  CHECK(p.w.failure().cause == cause::runtime_stopped);
  CHECK(p.w.failure().operation == operation_kind::barrier);
  p.check_told();
}

TEST_CASE("stop() breaks the worlds of collectives that tasks wait in, after its drain") {
  for (const duration drain : {duration(0), duration(200ms)}) {
    CAPTURE(drain.count());
    ending_pair p;
    auto entered = p.first->rt.start(enter(p.w));
    p.wait_until_entered();
    const auto begun = clock::now();
    p.first->rt.stop(drain);
    REQUIRE(entered.wait_for(5s));
    CHECK(clock::now() - begun >= drain);
    p.check_told();
  }
}

TEST_CASE("a collective that was cancelled before the runtime stops does not hold it") {
  ending_pair p;
  auto gives_up = [&]() -> task<void> {
    // Cancelled, and waited for: a collective is not taken back.
    co_await when_any(enter(p.w), sleep_for(1ms));
  };
  auto given_up = p.first->rt.start(gives_up());
  p.wait_until_entered();
  CHECK(!given_up.wait_for(100ms));
  p.first->rt.stop();
  CHECK(given_up.wait_for(5s));
  p.check_told();
}

TEST_CASE("a shielded collective does not hold the end of its runtime") {
  ending_pair p;
  auto entered = p.first->rt.start(enter_shielded(p.w));
  p.wait_until_entered();
  const auto begun = clock::now();
  p.first = nullptr;
  CHECK(clock::now() - begun < 8s);
  p.check_told();
}

TEST_CASE("a collective of another runtime's world does not hold the end of the task's") {
  ending_pair p;
  node foreign;
  // The task lives on `foreign`, the world on the first member's runtime.
  auto entered = foreign.rt.start(enter(p.w));
  p.wait_until_entered();
  foreign.rt.stop();
  CHECK(entered.wait_for(5s));
  p.check_told();
}

TEST_CASE("... nor does one that its token had stopped before") {
  ending_pair p;
  node foreign;
  std::stop_source stopping;
  auto stopped = [&]() -> task<void> {
    co_await p.w.barrier().stop(stopping.get_token());
  };
  auto entered = foreign.rt.start(stopped());
  p.wait_until_entered();
  stopping.request_stop();
  // It was entered: the others count on this member.
  CHECK(!entered.wait_for(100ms));
  foreign.rt.stop();
  CHECK(entered.wait_for(5s));
  p.check_told();
}

TEST_CASE("a collective that its token has stopped ends by its deadline all the same") {
  ending_pair p;
  std::stop_source stopping;
  auto stopped = [&]() -> task<void> {
    co_await p.w.barrier().within(300ms).stop(stopping.get_token());
  };
  auto entered = p.first->rt.start(stopped());
  p.wait_until_entered();
  stopping.request_stop();
  REQUIRE(entered.wait_for(5s));
  CHECK_THROWS_AS(entered.get(), world_error);
  CHECK(p.w.failure().cause == cause::overdue);
  const failure f = p.other.run(p.left.broken(), 5s);
  CHECK(f.cause == cause::overdue);
}

namespace {

/// What is left behind stays reachable, as the leak sanitizer wants it.
std::atomic<void*> left_behind{nullptr};
std::atomic<void*> left_on_service{nullptr};

/// Swallows its cancellation.
task<void> never_end(std::atomic<void*>& kept) {
  int here = 0;
  kept = &here;
  for (;;) co_await shield(sleep_for(1h));
}

/// Ends a runtime in which `start` started the task that puts its place into `place`.
template <class Start>
void check_left_behind(kept_log& log, const std::atomic<void*>& place, Start start) {
  simulation sim(1);
  std::optional<started<void>> task_of_it;
  {
    runtime_options simulated;
    simulated.environment = &sim.add_process("alone");
    simulated.log = &log;
    runtime rt(simulated);
    task_of_it = start(rt);
    REQUIRE(sim.run_until([&] { return place != nullptr; }));
  }
  CHECK(log.count("1 task started at", log_level::error) == 1);
  // No wait for it goes on.
  REQUIRE(task_of_it->is_ready());
  CHECK_THROWS_AS(task_of_it->get(), world_error);
}

}  // namespace

TEST_CASE("a task that swallows its cancellation is named, and left behind") {
  kept_log log;
  check_left_behind(log, left_behind,
                    [](runtime& rt) { return rt.start(never_end(left_behind)); });
  CHECK(log.has("runtime_ending_test.cpp"));
}

TEST_CASE("a service task that swallows its cancellation is named, and left behind") {
  kept_log log;
  check_left_behind(log, left_on_service, [](runtime& rt) {
    return rt.start_service(never_end(left_on_service));
  });
  CHECK(log.has("start_service() gave it does not end"));
}

TEST_CASE(
    "law 9: co_await of a world ends at its time to form though nothing turns its "
    "runtime") {
  memory_store store;
  node turned;
  node unturned;
  const world_options options{.name = "idle", .rank = 0, .size = 2, .form = 700ms};
  world_options second = options;
  second.rank = 1;
  SUBCASE("where the others come: they are told, too") {
    world w0(turned.rt, store, options);
    world w1(unturned.rt, store, second);
    auto formed = turned.rt.start(forming(w0));
    // A task of another runtime waits for it.
    const failure f = turned.run(forming(w1), 10s);
    CAPTURE(f.text());
    CHECK(f.cause == cause::not_turned);
    CHECK(f.rank == 1);
    CHECK(f.detail.find("has not been turned") != std::string::npos);
    CHECK(w1.state() == world_state::broken);
    CHECK(!turned.finish(formed));
    const failure told = turned.run(w0.broken(), 5s);
    CHECK(told.cause == cause::not_turned);
    CHECK(told.rank == 1);
    // A waiter of its own is told as soon as it can be.
    CHECK(unturned.run(forming(w1)).cause == cause::not_turned);
  }
  SUBCASE("where no other member comes") {
    world w1(unturned.rt, store, second);
    const failure f = turned.run(forming(w1), 10s);
    CHECK(f.cause == cause::not_joined);
    CHECK(f.rank == 0);
  }
}

TEST_CASE("run() inside a task of the same runtime says so") {
  auto inner = []() -> task<void> { co_return; };
  std::string said;
  runtime rt;
  auto nested = [&]() -> task<void> {
    try {
      rt.run(inner());
    } catch (const std::logic_error& e) {
      said = e.what();
    }
    co_return;
  };
  rt.run(nested());
  CHECK_MESSAGE(said.find("inside a task of the same runtime") != std::string::npos,
                said);
  // From another thread while this one turns it, and beside the runtime's own thread.
  std::string elsewhere;
  auto meanwhile = [&]() -> task<void> {
    std::thread other([&] {
      try {
        rt.run(inner());
      } catch (const std::logic_error& e) {
        elsewhere = e.what();
      }
    });
    other.join();
    co_return;
  };
  rt.run(meanwhile());
  CHECK_MESSAGE(elsewhere.find("by run() in another thread") != std::string::npos,
                elsewhere);
  rt.start(inner()).get();
  CHECK_THROWS_AS(rt.run(inner()), std::logic_error);
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
