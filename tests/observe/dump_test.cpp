#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "observe/parked_pair.hpp"
#include "world/runtime_core.hpp"

using namespace manyworlds;
using namespace manyworlds::observe_tests;

namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

}  // namespace

TEST_SUITE_BEGIN("dump");

TEST_CASE(
    "a dump shows a parked receive and its line while user code blocks the reactor") {
  parked_pair pair;
  REQUIRE(pair.is_blocked());
  const std::string text = pair.left.dump();
  INFO(text);
  CHECK(has(text, "pair@1: up, rank 0 of 2"));
  CHECK(has(text, "recv from rank 1 on lane 7, 0 of 64 bytes, not begun"));
  CHECK(has(text, "parked_pair.hpp:" + std::to_string(pair.receive_line)));
  CHECK(has(text, "it has not answered for"));
  CHECK_FALSE(has(text, "by shm"));
}

TEST_CASE("a reactor that answers adds its lanes, and the service its links") {
  parked_pair pair;
  REQUIRE(pair.is_blocked());
  const std::string text = pair.right.dump();
  INFO(text);
  CHECK_FALSE(has(text, "it has not answered"));
  CHECK(has(text, "by shm: 0 messages (0 bytes) sent"));
  CHECK(has(text, "with rank 0: 0 sent, 0 received; 0 sends and 1 receives wait"));
  CHECK(has(text, "links: 1\n"));
  CHECK(has(text, "rank 0: "));
  CHECK(has(text, "(pid " + std::to_string(::getpid()) + ") at 127.0.0.1:"));
}

TEST_CASE(
    "what has ended is remembered: operations with their line, worlds with their "
    "reason") {
  parked_pair pair;
  REQUIRE(pair.is_blocked());
  pair.finish();
  const std::string text = pair.left.dump();
  INFO(text);
  CHECK(has(text, "pair@1 recv from rank 1 on lane 7: 64 bytes in "));
  CHECK(has(text, "pair@1 send to rank 1 on lane 8: 4 bytes in "));
  CHECK(has(text, "worlds: 0\n"));
  CHECK(has(text, "worlds that ended lately, oldest first: 1\n"));
  CHECK(has(text, "ago: pair@1: "));
}

TEST_CASE("how long turns took is told apart by the library and tasks, and added up") {
  parked_pair pair;
  REQUIRE(pair.is_blocked());
  const turn_times times = pair.right.turns();
  CHECK(times.tasks.count() > 0);
  CHECK(times.tasks.count() <= access::core(pair.right).user().turns());
  CHECK(times.library.count() <= access::core(pair.right).user().turns());
  CHECK(times.tasks.quantile(0.5) <= times.tasks.longest);
  const std::string text = pair.right.dump();
  INFO(text);
  CHECK(has(text, "the library in a turn: at most "));
  CHECK(has(text, "tasks in a turn: at most "));
}

TEST_CASE("errors are counted by cause, and the world's age is told") {
  memory_store store;
  kept_log log;
  runtime left(logging_to(log, log_level::silent));
  runtime right(logging_to(log, log_level::silent));
  auto be = [&](runtime& rt, rank_t rank) -> task<void> {
    world_options o;
    o.name = "tally";
    o.rank = rank;
    o.size = 2;
    o.form = enough;
    world w(rt, store, o);
    CHECK(w.history().up_for == duration::zero());
    co_await w;
    if (rank == 0) {
      for (int i = 0; i < 3; ++i) {
        float x = 0;
        bool late = false;
        try {
          co_await w.recv(std::span(&x, 1), from{1}).within(1ms);
        } catch (const world_error& e) {
          late = e.cause() == cause::timed_out;
        }
        CHECK(late);
      }
      const world_history h = w.history();
      REQUIRE(h.errors.size() == 1);
      CHECK(h.errors[0].cause == cause::timed_out);
      CHECK(h.errors[0].operations == 3);
      CHECK(h.up_for >= 3ms);
      CHECK(h.times_suspect == 0);
      const std::string text = rt.dump();
      INFO(text);
      CHECK(has(text, "3 operations ended with timed_out"));
      CHECK(has(text, "tally@1 recv from rank 1 on lane 0: failed: timed_out in "));
      float y = 4;
      co_await w.send(std::span(&y, 1), to{1});
      CHECK(w.counters().messages_sent == 1);
      CHECK(w.counters().bytes_sent == sizeof y);
    } else {
      float y = 0;
      co_await w.recv(std::span(&y, 1), from{0});
      CHECK(w.counters().messages_received == 1);
    }
    co_await w.leave();
  };
  auto first = left.start(be(left, 0));
  auto second = right.start(be(right, 1));
  first.get();
  second.get();
}

TEST_CASE("after a break a dump tells why the world and its pending operations ended") {
  memory_store store;
  kept_log log;
  runtime left(logging_to(log, log_level::silent));
  runtime right(logging_to(log, log_level::silent));
  auto be = [&](runtime& rt, rank_t rank) -> task<void> {
    world_options o;
    o.name = "doomed";
    o.rank = rank;
    o.size = 2;
    o.form = enough;
    world w(rt, store, o);
    co_await w;
    float x = 0;
    const float word = 1;
    bool broken = false;
    try {
      if (rank == 0) {
        // Its receive is pending when the other hears of it and breaks the world.
        co_await when_all(w.recv(std::span(&x, 1), from{1}),
                          w.send(std::span(&word, 1), to{1}));
      } else {
        co_await w.recv(std::span(&x, 1), from{0});
        w.fail("the test says so");
        co_await w.recv(std::span(&x, 1), from{0});
      }
    } catch (const world_error& e) {
      broken = e.cause() == cause::broken_by_user;
    }
    CHECK(broken);
    co_await w.drained();
  };
  auto first = left.start(be(left, 0));
  auto second = right.start(be(right, 1));
  first.get();
  second.get();
  const std::string text = left.dump();
  INFO(text);
  CHECK(has(text, "doomed@1 recv from rank 1 on lane 0: failed: broken_by_user in "));
  CHECK(has(text, "ago: doomed@1 broken: rank 1 "));
  CHECK(has(text, "the test says so"));
}

TEST_CASE("a dump taken on the reactor itself asks no other thread") {
  kept_log log;
  runtime rt(logging_to(log, log_level::silent));
  auto look = [&]() -> task<std::string> { co_return rt.dump(); };
  const std::string text = rt.run(look());
  INFO(text);
  CHECK(has(text, "worlds: 0"));
  CHECK_FALSE(has(text, "it has not answered"));
}

TEST_CASE("a runtime that no thread turns is described all the same") {
  kept_log log;
  runtime rt(logging_to(log, log_level::silent));
  const std::string text = rt.dump();
  INFO(text);
  CHECK(has(text, "of pid " + std::to_string(::getpid())));
  CHECK(has(text, "lanes, counters and sessions are unknown"));
}

TEST_CASE("a dump in a forked child says so instead of waiting for its parent's locks") {
  kept_log log;
  runtime rt(logging_to(log, log_level::silent));
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(20);
    ::_exit(has(rt.dump(), "forked child") && has(rt.dump_json(), "forked") ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_SUITE_END();
