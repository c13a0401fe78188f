// Wrong use of runtimes and worlds: its own error for each, and nothing else is
// disturbed.
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>
#include <system_error>

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
  const std::string taken = holder.rt.core().self().endpoint.text();
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
    w.core()->begin_forming();
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

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
