// Wrong use of runtimes and worlds: its own error for each, and nothing else is
// disturbed.
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>
#include <system_error>

#include "manyworlds/world/graph_hold.hpp"
#include "world_fixture.hpp"

namespace manyworlds::world_tests {

TEST_SUITE_BEGIN("world");

namespace {

task<failure> sending(world& w, rank_t peer, lane on = {}) {
  const std::uint64_t word = 1;
  co_return (co_await outcome(w.send(std::span(&word, 1), to(peer), on))).error();
}
task<failure> receiving(world& w, from peer, lane on = {}) {
  std::uint64_t word = 0;
  co_return (co_await outcome(w.recv(std::span(&word, 1), peer, on))).error();
}

}  // namespace

TEST_CASE("operations on a world that is not formed say so") {
  memory_store store;
  node n;
  world w(n.rt, store, {.name = "new", .rank = 0, .size = 2});
  CHECK(n.run(sending(w, 1)).cause == cause::not_formed);
  CHECK(n.run(receiving(w, any)).cause == cause::not_formed);
  auto barrier = [](world& w) -> task<failure> {
    co_return (co_await outcome(w.barrier())).error();
  };
  CHECK(n.run(barrier(w)).cause == cause::not_formed);
  CHECK(w.state() == world_state::described);
}

TEST_CASE(
    "a peer out of range, oneself, and a reserved lane are invalid_argument; the world "
    "stays up") {
  pair p;
  for (const rank_t peer : {2, 4711, -2}) {
    const failure f = p.a.run(sending(p.wa, peer));
    CHECK(f.cause == cause::invalid_argument);
    CHECK(f.detail.find("rank " + std::to_string(peer)) != std::string::npos);
    CHECK(p.a.run(receiving(p.wa, from(peer))).cause == cause::invalid_argument);
  }
  CHECK(p.a.run(sending(p.wa, no_rank)).cause == cause::invalid_argument);
  CHECK(p.a.run(sending(p.wa, 0)).detail.find("itself") != std::string::npos);
  CHECK(p.a.run(receiving(p.wa, from(0))).detail.find("itself") != std::string::npos);
  const lane reserved(lane::reserved | 7);
  CHECK(p.a.run(sending(p.wa, 1, reserved)).cause == cause::invalid_argument);
  CHECK(p.a.run(receiving(p.wa, from(1), reserved)).cause == cause::invalid_argument);
  CHECK(p.a.run(receiving(p.wa, any, reserved)).cause == cause::invalid_argument);
  check_alive(p.a, p.wa, p.b, p.wb);
}

TEST_CASE("operations after leave() are closed, at the one who left and at the others") {
  pair p;
  p.a.run(p.wa.leave());
  CHECK(p.a.run(sending(p.wa, 1)).cause == cause::closed);
  CHECK(p.a.run(receiving(p.wa, from(1))).cause == cause::closed);
  CHECK(p.b.run(p.wb.broken()).cause == cause::closed);
  CHECK(p.b.run(sending(p.wb, 0)).cause == cause::closed);
  CHECK(p.b.run(receiving(p.wb, any)).cause == cause::closed);
  // Leaving twice is leaving.
  p.a.run(p.wa.leave());
  p.b.run(p.wb.leave());
}

TEST_CASE("a port in use, a bad address and an open one without a secret are named") {
  const auto message_of = [](runtime_options o) -> std::string {
    try {
      runtime rt(o);
    } catch (const std::system_error& e) {
      return e.what();
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return {};
  };
  node holder;
  const std::string taken = access::core(holder.rt).self().endpoint.text();
  CHECK(message_of({.listen = taken}).find(taken) != std::string::npos);
  CHECK(message_of({.listen = "somewhere"}).find("somewhere") != std::string::npos);
  CHECK(message_of({.listen = "0.0.0.0:0"}).find("secret") != std::string::npos);
  CHECK(message_of({.listen = "0.0.0.0:0", .insecure = true}).find("advertise") !=
        std::string::npos);
  CHECK(message_of({.advertise = "nonsense"}).find("nonsense") != std::string::npos);
  CHECK(message_of({.heartbeat = 0s}).find("heartbeat") != std::string::npos);
}

TEST_CASE("a reactor that one thread turns is refused to others") {
  auto nothing = []() -> task<void> { co_return; };
  {
    node n;
    n.run(nothing());
    CHECK_THROWS_AS(n.rt.run(nothing()), std::logic_error);
    CHECK_THROWS_AS(n.rt.poll(), std::logic_error);
    CHECK_THROWS_AS((void)n.rt.prepare_wait(), std::logic_error);
  }
  {
    node n;
    n.rt.poll();
    CHECK_THROWS_AS(n.rt.run(nothing()), std::logic_error);
    // Started beside the foreign loop, it runs in its turns.
    auto started = n.rt.start(nothing());
    for (const auto until = clock::now() + 5s;
         !started.is_ready() && clock::now() < until;) {
      n.rt.poll();
    }
    CHECK(started.is_ready());
  }
}

TEST_CASE("a task that throws something else breaks nothing: it is what run() throws") {
  node n;
  auto throwing = []() -> task<int> {
    co_await yield();
    throw std::runtime_error("the user's own");
  };
  CHECK_THROWS_WITH(n.run(throwing()), "the user's own");
  auto fine = []() -> task<int> { co_return 7; };
  CHECK(n.run(fine()) == 7);
}

TEST_CASE("a stopped runtime forms no worlds") {
  memory_store store;
  node n;
  n.rt.stop(5s);
  world w(n.rt, store, {.name = "late", .rank = 0, .size = 1});
  // The task itself is cancelled, or ends with the reason.
  auto started = n.rt.start(forming(w));
  CHECK(started.wait_for(10s));
  CHECK(w.state() != world_state::up);
}

TEST_CASE(
    "a forked child that uses the runtime gets a named error, and the parent is "
    "undisturbed") {
  pair p;
  auto waiting = p.a.rt.start(receiving(p.wa, from(1)));
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    // Only the thread that forked is here. Nothing of the test's own may run.
    int wrong = 0;
    const auto is_refused = [&](auto use) {
      try {
        use();
        ++wrong;
      } catch (const world_error& e) {
        wrong += e.cause() != cause::forked;
      } catch (...) {
        ++wrong;
      }
    };
    auto nothing = []() -> task<void> { co_return; };
    is_refused([&] { (void)p.a.rt.start(nothing()); });
    is_refused([&] { p.a.rt.run(nothing()); });
    is_refused([&] { p.a.rt.poll(); });
    world w(p.a.rt, p.store, {.name = "pair", .rank = 0, .size = 2});
    access::core(w).begin_forming();
    wrong += w.failure().cause != cause::forked;
    ::_exit(wrong);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(!p.b.run(sending(p.wb, 0)));
  CHECK(!p.a.finish(waiting));
  check_alive(p.a, p.wa, p.b, p.wb);
}

TEST_CASE("a forked child may destroy the runtime; the parent is undisturbed") {
  memory_store store;
  auto a = std::make_unique<runtime>(runtime_options{.log_from = log_level::error});
  node b;
  auto wa = std::make_unique<world>(*a, store,
                                    world_options{.name = "f", .rank = 0, .size = 2});
  world wb(b.rt, store, {.name = "f", .rank = 1, .size = 2});
  auto first = a->start(forming(*wa));
  REQUIRE(!b.run(forming(wb)));
  REQUIRE(first.wait_for(10s));
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    wa = nullptr;
    a = nullptr;
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(!b.run(sending(wb, 0)));
  auto got = a->start(receiving(*wa, from(1)));
  CHECK(got.wait_for(10s));
  CHECK(!got.get());
  wa = nullptr;
  CHECK(b.run(wb.broken()).cause == cause::abandoned);
}

namespace {

/// Whether it is refused as an operation on no world.
template <class F>
bool is_refused(F&& f) {
  try {
    f();
  } catch (const world_error& e) {
    CHECK(std::string(e.what()).find("this handle has no world") != std::string::npos);
    return e.cause() == cause::invalid_argument;
  }
  return false;
}

task<void> leave_refused(world& w, int& refused) {
  const auto count = [&](auto&& awaitable) -> task<void> {
    try {
      co_await std::forward<decltype(awaitable)>(awaitable);
    } catch (const world_error& e) {
      if (e.cause() == cause::invalid_argument) ++refused;
    }
  };
  co_await count(w.leave());
  co_await count(w.broken());
  co_await count(w.drained());
  co_await count(w.shrink());
  try {
    co_await w;
  } catch (const world_error& e) {
    if (e.cause() == cause::invalid_argument) ++refused;
  }
}

void check_refusals(world& w) {
  CHECK_FALSE(w);
  std::vector<float> x(4);
  const device_view d;
  int calls = 0;
  // Before they are awaited: an operation has to know its world.
  CHECK(is_refused([&] { (void)w.send(x, to{1}); }));
  CHECK(is_refused([&] { (void)w.recv(x, from{1}); }));
  CHECK(is_refused([&] { (void)w.send_message(calls, to{1}); }));
  CHECK(is_refused([&] { (void)w.recv_message<int>(from{1}); }));
  CHECK(is_refused([&] { (void)w.recv_message<int>(from{1}, lane{1}); }));
  CHECK(is_refused([&] { (void)w.arrival(any); }));
  CHECK(is_refused([&] { (void)w.arrival(any, lane{1}); }));
  CHECK(is_refused([&] { (void)w.barrier(); }));
  CHECK(is_refused([&] { (void)w.all_reduce(x, sum); }));
  CHECK(is_refused([&] { (void)w.send(d, to{1}); }));
  CHECK(is_refused([&] { (void)w.all_reduce(d, sum); }));
  CHECK(is_refused([&] { (void)w.device_ready(); }));
  CHECK(is_refused([&] { (void)w.stream(); }));
  CHECK(is_refused([&] { (void)w.reform(); }));
  CHECK(is_refused([&] { (void)w.grow(); }));
  CHECK(is_refused([&] { w.fail("no"); }));
  CHECK(is_refused([&] { w.discard(from{1}, lane{lane::reserved}); }));
  CHECK(is_refused([&] { (void)w.name(); }));
  CHECK(is_refused([&] { (void)w.rank(); }));
  CHECK(is_refused([&] { (void)w.size(); }));
  CHECK(is_refused([&] { (void)w.epoch(); }));
  CHECK(is_refused([&] { (void)w.state(); }));
  CHECK(is_refused([&] { (void)w.failure(); }));
  CHECK(is_refused([&] { (void)w.view(); }));
  CHECK(is_refused([&] { (void)w.is_suspect(0); }));
  CHECK(is_refused([&] { (void)w.history(); }));
  CHECK(is_refused([&] { (void)w.counters(); }));
  CHECK(is_refused([&] { (void)w.transport(); }));
  CHECK(is_refused([&] { (void)w.previous_rank_of(0); }));
  CHECK(is_refused([&] { graph_hold hold(w, [] {}); }));
  node n;
  int refused = 0;
  n.run(leave_refused(w, refused));
  CHECK(refused == 5);
}

}  // namespace

TEST_CASE("a world that was default-constructed or moved from refuses everything") {
  world none;
  check_refusals(none);
  memory_store store;
  node n;
  world w(n.rt, store, {.name = "moved", .rank = 0, .size = 2});
  const world taken = std::move(w);
  check_refusals(w);  // NOLINT(bugprone-use-after-move)
  CHECK(taken.state() == world_state::described);
}

TEST_CASE("get() inside of a task throws in place of stopping the reactor") {
  node n;
  auto waits = []() -> task<int> {
    co_await sleep_for(1ms);
    co_return 3;
  };
  auto body = [&]() -> task<void> {
    auto other = n.rt.start(waits());
    CHECK_THROWS_AS(other.get(), std::logic_error);
    while (!other.is_ready()) co_await sleep_for(1ms);
    // It does not block any longer.
    CHECK(other.get() == 3);
  };
  n.run(body());
}

TEST_CASE(
    "an empty task is refused by start and run, a started one that was moved from") {
  node n;
  CHECK_THROWS_AS((void)n.rt.start(task<void>()), std::invalid_argument);
  auto first = n.rt.start([]() -> task<int> { co_return 3; }());
  auto second = std::move(first);
  CHECK_THROWS_AS((void)first.get(), std::invalid_argument);  // NOLINT
  CHECK_THROWS_AS((void)first.is_ready(), std::invalid_argument);
  CHECK(n.finish(std::move(second)) == 3);
  runtime other;
  CHECK_THROWS_AS(other.run(task<int>()), std::invalid_argument);
  // It is as it was.
  CHECK(other.run([]() -> task<int> { co_return 4; }()) == 4);
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
