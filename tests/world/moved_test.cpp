// Runtimes that one thread turns after the other, under each engine.
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>

#include "support/refused_here.hpp"
#include "world_fixture.hpp"

namespace manyworlds::world_tests {

TEST_SUITE_BEGIN("world");

namespace {

constexpr std::uint64_t rounds = 20;

std::vector<engine_kind> engines_to_move() {
  std::vector<engine_kind> all{engine_kind::epoll};
  if (!testing::io_uring_is_refused_here()) all.push_back(engine_kind::io_uring);
  return all;
}

/// A world of two. The threads of a test turn the first member.
struct moved_pair {
  explicit moved_pair(engine_kind e) : first({.engine = e, .shared_memory = false}) {
    mine = world(first.rt, store, {.name = "moved", .rank = 0, .size = 2, .form = 10s});
    theirs = world(other.rt, store, {.name = "moved", .rank = 1, .size = 2, .form = 10s});
    echoing = other.rt.start(echo(theirs));
  }

  static task<void> echo(world& w) {
    co_await w;
    for (std::uint64_t word = 0;;) {
      co_await w.recv(std::span(&word, 1), from(0));
      co_await w.send(std::span(&word, 1), to(0));
    }
  }
  /// Returns how many answers were right.
  static task<std::uint64_t> ask(world& w) {
    co_await w;
    std::uint64_t right = 0;
    for (std::uint64_t n = 0; n < rounds; ++n) {
      std::uint64_t word = n;
      co_await w.send(std::span(&word, 1), to(1)).within(5s);
      word = 0;
      co_await w.recv(std::span(&word, 1), from(1)).within(5s);
      right += word == n;
      co_await sleep_for(100us);
    }
    co_return right;
  }

  memory_store store;
  node other;
  node first;
  world mine;
  world theirs;
  std::optional<started<void>> echoing;
};

/// Returns false if it did not end, and leaves the thread behind then.
bool on_a_thread(std::function<void()> act, duration limit = 20s) {
  const auto over = std::make_shared<std::promise<void>>();
  std::future<void> is_over = over->get_future();
  std::thread thread([act = std::move(act), over] {
    try {
      act();
      over->set_value();
    } catch (...) {
      over->set_exception(std::current_exception());
    }
  });
  const bool has_ended = is_over.wait_for(limit) == std::future_status::ready;
  has_ended ? thread.join() : thread.detach();
  if (has_ended) is_over.get();
  return has_ended;
}

}  // namespace

TEST_CASE("a runtime runs a task on one thread, and then another one on another") {
  for (const engine_kind e : engines_to_move()) {
    CAPTURE(static_cast<int>(e));
    moved_pair p(e);
    CHECK(p.first.rt.run(moved_pair::ask(p.mine)) == rounds);
    for (int i = 0; i < 3; ++i) {
      std::uint64_t right = 0;
      REQUIRE(on_a_thread([&] { right = p.first.rt.run(moved_pair::ask(p.mine)); }));
      CHECK(right == rounds);
    }
    CHECK(p.first.rt.run(moved_pair::ask(p.mine)) == rounds);
    CHECK(p.first.rt.run(moved_pair::ask(p.mine)) == rounds);
  }
}

TEST_CASE("a runtime runs a task on a thread, and then gets a thread of its own") {
  for (const engine_kind e : engines_to_move()) {
    CAPTURE(static_cast<int>(e));
    moved_pair p(e);
    CHECK(p.first.rt.run(moved_pair::ask(p.mine)) == rounds);
    CHECK(p.first.run(moved_pair::ask(p.mine)) == rounds);
  }
}

TEST_CASE("a runtime runs a task, and is then turned by the foreign loop of another") {
  for (const engine_kind e : engines_to_move()) {
    CAPTURE(static_cast<int>(e));
    moved_pair p(e);
    CHECK(p.first.rt.run(moved_pair::ask(p.mine)) == rounds);
    runtime& rt = p.first.rt;
    std::uint64_t right = 0;
    REQUIRE(on_a_thread([&] {
      pollfd waited{rt.descriptor(), POLLIN, 0};
      rt.poll();
      auto asking = rt.start(moved_pair::ask(p.mine));
      const auto until = clock::now() + 10s;
      while (!asking.is_ready() && clock::now() < until) {
        if (rt.poll()) continue;
        const std::optional<duration> longest = rt.prepare_wait();
        const auto whole = std::chrono::ceil<std::chrono::milliseconds>(
            std::min<duration>(longest.value_or(1s), 1s));
        ::poll(&waited, 1, static_cast<int>(whole.count()));
      }
      if (asking.is_ready()) right = asking.get();
      // A foreign loop does not say when it is over, so its runtime ends with it.
      rt.~runtime();
    }));
    CHECK(right == rounds);
    new (&rt) runtime({.log_from = log_level::silent});
  }
}

TEST_CASE("a runtime is destroyed by another thread than the one that ran its task") {
  for (const engine_kind e : engines_to_move()) {
    CAPTURE(static_cast<int>(e));
    moved_pair p(e);
    std::uint64_t right = 0;
    REQUIRE(on_a_thread([&] { right = p.first.rt.run(moved_pair::ask(p.mine)); }));
    CHECK(right == rounds);
    const auto begun = clock::now();
    p.first.rt.~runtime();
    CHECK(clock::now() - begun < 5s);
    CHECK(p.first.log.count("", log_level::error) == 0);
    new (&p.first.rt) runtime({.log_from = log_level::silent});
  }
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
