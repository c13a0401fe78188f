// Keep: what it absorbs, what it lets pass, and when it ends.
#include <atomic>
#include <functional>
#include <memory>
#include <stdexcept>

#include "../world/world_fixture.hpp"
#include "manyworlds/testing/simulation.hpp"
#include "serve/supervision.hpp"
#include "support/eventually.hpp"

namespace manyworlds::world_tests {

TEST_SUITE_BEGIN("serve");

namespace {

world_options options(const char* name, rank_t rank) {
  return {.name = name, .rank = rank, .size = 2, .form = 10s};
}

/// The end may come right behind the commit: then it is the forming that is told.
void check_broken_by(node& n, world& w, std::string_view text) {
  (void)n.run(forming(w));
  const failure f = n.run(w.broken());
  CHECK(f.cause == cause::broken_by_user);
  CAPTURE(f.text());
  CHECK(f.detail.find(text) != std::string::npos);
}

}  // namespace

TEST_CASE("keep ends when its body returns, and the others see the world closed") {
  memory_store store;
  node a;
  node b;
  auto brief = [](world&) -> task<void> { co_return; };
  auto kept = a.rt.start(keep(a.rt, store, options("edge", 0), brief));
  world w(b.rt, store, options("edge", 1));
  CHECK(!b.run(forming(w)));
  CHECK(b.run(w.broken()).cause == cause::closed);
  a.finish(kept);
}

TEST_CASE("keep of the side that is left ends too, or forms again if it is told so") {
  memory_store store;
  node a;
  node b;
  std::atomic<int> bodies{0};
  auto waits = [&](world& w) -> task<void> {
    ++bodies;
    std::uint64_t word = 0;
    co_await w.recv(std::span(&word, 1), from(1));
  };
  for (const after_close closing : {after_close::end, after_close::form_again}) {
    bodies = 0;
    auto kept = a.rt.start(keep(a.rt, store, options("edge", 0), waits, closing));
    const int times = closing == after_close::end ? 1 : 3;
    for (int i = 0; i < times; ++i) {
      world w(b.rt, store, options("edge", 1));
      CHECK(!b.run(forming(w)));
      b.run(w.leave());
    }
    if (closing == after_close::form_again) {
      world last(b.rt, store, options("edge", 1));
      CHECK(!b.run(forming(last)));
      auto send = [&]() -> task<void> {
        const std::uint64_t word = 1;
        co_await last.send(std::span(&word, 1), to(0)).delivered();
      };
      b.run(send());
      a.finish(kept);
      CHECK(bodies == 4);
      b.run(last.leave());
    } else {
      a.finish(kept);
      CHECK(bodies == 1);
    }
  }
}

TEST_CASE(
    "keep in a world of three that one has left leaves too: the third sees it closed") {
  for (const after_close closing : {after_close::end, after_close::form_again}) {
    memory_store store;
    node a;
    node b;
    node c;
    const auto member = [](rank_t rank) {
      world_options o = options("three", rank);
      o.size = 3;
      return o;
    };
    auto waits = [](world& w) -> task<void> {
      std::uint64_t word = 0;
      co_await w.recv(std::span(&word, 1), from(1));
    };
    auto kept = a.rt.start(keep(a.rt, store, member(0), waits, closing));
    world leaving(b.rt, store, member(1));
    world staying(c.rt, store, member(2));
    auto formed = b.rt.start(forming(leaving));
    CHECK(!c.run(forming(staying)));
    CHECK(!b.finish(formed));
    b.run(leaving.leave());
    const failure f = c.run(staying.broken());
    CAPTURE(f.text());
    CHECK(f.cause == cause::closed);
    a.rt.stop();
    a.finish(kept);
  }
}

TEST_CASE("keep forms the next epoch after a break, with a pause that grows") {
  memory_store store;
  node a;
  node b;
  std::vector<std::uint64_t> epochs;
  std::vector<clock::time_point> ups;
  auto count = [&](world& w) -> task<void> {
    epochs.push_back(w.epoch());
    ups.push_back(clock::now());
    if (epochs.size() == 4) co_return;
    w.fail("again");
    // The first cause is what it ends by.
    co_await w.drained();
    std::uint64_t word = 0;
    co_await w.recv(std::span(&word, 1), from(1));
  };
  auto follow = [](world& w) -> task<void> {
    std::uint64_t word = 0;
    co_await w.recv(std::span(&word, 1), from(0));
  };
  auto kept = a.rt.start(keep(a.rt, store, options("edge", 0), count));
  auto followed = b.rt.start(keep(b.rt, store, options("edge", 1), follow));
  a.finish(kept);
  b.finish(followed);
  REQUIRE(epochs.size() == 4);
  for (std::size_t i = 1; i < epochs.size(); ++i) CHECK(epochs[i] == epochs[i - 1] + 1);
  // 50, 100 and 200 ms at the least.
  CHECK(ups[1] - ups[0] >= 50ms);
  CHECK(ups[3] - ups[0] >= 350ms);
}

TEST_CASE(
    "keep absorbs only its own world's failure: that of another passes, and breaks this "
    "one") {
  memory_store store;
  node a;
  node b;
  pair other({.name = "other", .form = 10s});
  auto fails_elsewhere = [&](world&) -> task<void> {
    std::uint64_t word = 0;
    co_await other.wa.recv(std::span(&word, 1), from(1));
  };
  auto kept = a.rt.start(keep(a.rt, store, options("edge", 0), fails_elsewhere));
  world w(b.rt, store, options("edge", 1));
  CHECK(!b.run(forming(w)));
  other.wb.fail("not the edge");
  try {
    a.finish(kept);
    FAIL("absorbed");
  } catch (const world_error& e) {
    CHECK(e.failure().world == world_name("other"));
    CHECK(e.cause() == cause::broken_by_user);
  }
  CHECK(b.run(w.broken()).cause == cause::broken_by_user);
}

TEST_CASE(
    "what else the body throws passes; the others are told its text, and it is logged "
    "and "
    "counted") {
  memory_store store;
  node a;
  node b;
  auto throws = [](world&) -> task<void> {
    co_await yield();
    throw std::runtime_error("the body's own");
  };
  auto kept = a.rt.start(keep(a.rt, store, options("edge", 0), throws));
  world w(b.rt, store, options("edge", 1));
  auto followed = b.rt.start(forming(w));
  CHECK_THROWS_WITH(a.finish(kept), "the body's own");
  b.finish(followed);
  check_broken_by(b, w, "the body of keep ended by an exception: the body's own");
  CHECK(a.log.count("keep edge@1: the body ended by an exception: the body's own",
                    log_level::error) == 1);
  CHECK(a.rt.dump().find("bodies that ended by an exception: 1") != std::string::npos);
}

TEST_CASE(
    "an operation that failed alone passes: the world is up, and no new epoch would "
    "help") {
  memory_store store;
  node a;
  node b;
  auto wrong = [](world& w) -> task<void> {
    std::uint64_t word = 0;
    co_await w.recv(std::span(&word, 1), from(5));
  };
  auto kept = a.rt.start(keep(a.rt, store, options("edge", 0), wrong));
  world w(b.rt, store, options("edge", 1));
  check_broken_by(b, w, "the body of keep ended by an exception: edge@1");
  try {
    a.finish(kept);
    FAIL("absorbed");
  } catch (const world_error& e) {
    CHECK(e.cause() == cause::invalid_argument);
  }
}

TEST_CASE("wrong options end keep at once; no number of tries would mend them") {
  memory_store store;
  node a;
  auto never = [](world&) -> task<void> { co_return; };
  auto kept =
      a.rt.start(keep(a.rt, store, {.name = "edge", .rank = 3, .size = 2}, never));
  try {
    a.finish(kept, 5s);
    FAIL("absorbed");
  } catch (const world_error& e) {
    CHECK(e.cause() == cause::invalid_argument);
  }
}

TEST_CASE("a secret that rank 0 refuses ends keep; one that it refused itself does not") {
  failure f(cause::wrong_secret, {});
  f.rank = 0;
  CHECK(!is_worth_another_try(f));
  f.rank = 1;
  CHECK(is_worth_another_try(f));
}

TEST_CASE("keep tries again when no member joins, and ends when its runtime stops") {
  memory_store store;
  node a;
  auto never = [](world&) -> task<void> { co_return; };
  world_options impatient = options("edge", 0);
  impatient.form = 50ms;
  auto kept = a.rt.start(keep(a.rt, store, impatient, never));
  // Two tries and the pauses behind them, at the least.
  CHECK(!kept.wait_for(400ms));
  CHECK(access::core(a.rt).worlds().ended().size() >= 2);
  a.rt.stop();
  CHECK(kept.wait_for(5s));
  kept.get();
}

TEST_CASE("the pauses go on growing however long each try to form took") {
  simulation sim(1);
  memory_store store;
  kept_log log;
  runtime_options simulated;
  simulated.environment = &sim.add_process("alone");
  simulated.log = &log;
  runtime rt(simulated);
  auto never = [](world&) -> task<void> { co_return; };
  world_options patient = options("edge", 0);
  patient.form = 6s;
  auto kept = rt.start(keep(rt, store, patient, never));
  REQUIRE(sim.run_until([&] { return access::core(rt).worlds().ended().size() == 5; }));
  // 50, 100, 200 and 400 ms at the least between five tries.
  CHECK(sim.elapsed() >= 5 * patient.form + 750ms);
  CHECK(sim.elapsed() <= 5 * patient.form + 2s);
  rt.stop();
  REQUIRE(sim.run_until([&] { return kept.is_ready(); }));
}

TEST_CASE("the pauses begin anew once a world was up for a second") {
  node a;
  back_off pause(access::core(a.rt));
  for (int i = 0; i < 3; ++i) (void)pause.next();
  pause.was_up_for(999ms);
  CHECK(pause.next() >= 400ms);
  // A member that is killed every few seconds is not waited for longer each time.
  pause.was_up_for(1s);
  CHECK(pause.next() <= 75ms);
}

TEST_CASE(
    "a runtime that stops ends keeps at every stage: forming, used, and between two "
    "tries") {
  memory_store store;
  std::atomic<bool> is_used = false;
  auto waits = [&](world& w) -> task<void> {
    is_used = true;
    std::uint64_t word = 0;
    co_await w.recv(std::span(&word, 1), from(1));
  };
  node a;
  node b;
  auto forming_one = a.rt.start(keep(a.rt, store, options("unjoined", 0), waits));
  auto used = a.rt.start(keep(a.rt, store, options("edge", 0), waits));
  world_options impatient = options("pausing", 0);
  impatient.form = 1ms;
  auto pausing = a.rt.start(keep(a.rt, store, impatient, waits));
  world w(b.rt, store, options("edge", 1));
  CHECK(!b.run(forming(w)));
  // Else the world has nothing open yet, and is left in place of broken.
  REQUIRE(testing::eventually([&] { return is_used.load(); }));
  a.rt.stop();
  for (auto* each : {&forming_one, &used, &pausing}) CHECK(each->wait_for(5s));
  // Told, not timed out.
  const failure told = b.run(w.broken(), 4s);
  CHECK_MESSAGE(told.breaks_world(), told.text());
}

TEST_CASE("a body that captures by value is run and ended once, however it is written") {
  memory_store store;
  node a;
  node b;
  const auto held = std::make_shared<int>(7);
  int bodies = 0;
  auto all_ways = [&]() -> task<void> {
    // Awaited in place: by reference, by name, bound.
    co_await keep(a.rt, store, options("by reference", 0), [&](world&) -> task<void> {
      bodies += *held == 7;
      co_return;
    });
    const auto named = [held, &bodies](world&) -> task<void> {
      bodies += *held == 7;
      co_return;
    };
    co_await keep(a.rt, store, options("named", 0), named);
    co_await keep(
        a.rt, store, options("bound", 0),
        std::bind_front(
            [](int& count, const std::shared_ptr<int>& h, world&) -> task<void> {
              count += *h == 7;
              co_return;
            },
            std::ref(bodies), held));
    task<void> first =
        keep(a.rt, store, options("task", 0), [held, &bodies](world&) -> task<void> {
          bodies += *held == 7;
          co_return;
        });
    co_await std::move(first);
    co_await scope::run([&](scope& s) -> task<void> {
      s.spawn(
          keep(a.rt, store, options("spawned", 0), [held, &bodies](world&) -> task<void> {
            bodies += *held == 7;
            co_return;
          }));
      co_return;
    });
  };
  auto kept = a.rt.start(all_ways());
  for (const char* name : {"by reference", "named", "bound", "task", "spawned"}) {
    world w(b.rt, store, options(name, 1));
    CHECK(!b.run(forming(w)));
    CHECK(b.run(w.broken()).cause == cause::closed);
  }
  a.finish(kept);
  CHECK(bodies == 5);
  CHECK(held.use_count() == 1);
}

TEST_CASE(
    "a body that moves its world away owns it: keep ends with it and leaves nothing") {
  memory_store store;
  node a;
  node b;
  world taken;
  for (const bool throws : {false, true}) {
    auto takes = [&](world& w) -> task<void> {
      taken = std::move(w);
      if (throws) throw std::runtime_error("after that");
      co_return;
    };
    auto kept = a.rt.start(keep(a.rt, store, options("taken", 0), takes));
    world w(b.rt, store, options("taken", 1));
    CHECK(!b.run(forming(w)));
    if (throws) {
      CHECK_THROWS_AS(a.finish(kept), std::runtime_error);
    } else {
      a.finish(kept);
    }
    CHECK(taken.state() == world_state::up);
    a.run(taken.leave());
    b.run(w.leave());
  }
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
