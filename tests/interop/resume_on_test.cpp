#include "manyworlds/interop/resume_on.hpp"

#include <deque>
#include <functional>
#include <stdexcept>
#include <stop_token>

#include "coro/foreign_coroutine.hpp"
#include "coro/test_executor.hpp"
#include "manyworlds/coro/channel.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/stop.hpp"

namespace manyworlds::testing {
namespace {

// Another library's loop.
struct foreign_loop {
  std::deque<std::function<void()>> jobs;
  int ran = 0;
  void run() {
    while (!jobs.empty()) {
      auto job = std::move(jobs.front());
      jobs.pop_front();
      ++ran;
      job();
    }
  }
};

}  // namespace

TEST_SUITE_BEGIN("resume_on");

TEST_CASE("a foreign coroutine goes on through its own loop") {
  foreign_loop loop;
  foreign_executor home([&](auto f) { loop.jobs.emplace_back(f); });
  channel<int> c(1);
  int got = 0;
  auto body = [&]() -> foreign_coroutine {
    auto v = co_await resume_on(home, c.pop());
    got = *v;
    v = co_await resume_on(home, c.pop());
    got += *v;
  };
  foreign_coroutine f = body();
  CHECK(c.try_push(3));
  CHECK(got == 0);  // not on the pusher's stack
  loop.run();
  CHECK(got == 3);
  CHECK(c.try_push(4));
  loop.run();
  CHECK(got == 7);
  CHECK(f.is_done());
}

TEST_CASE("errors and stops reach a foreign coroutine as exceptions") {
  foreign_loop loop;
  foreign_executor home([&](auto f) { loop.jobs.emplace_back(f); });
  channel<int> c(1);
  std::stop_source source;
  int caught = 0;
  auto fails = []() -> task<void> {
    co_await yield();
    throw std::runtime_error("no");
  };
  auto body = [&]() -> foreign_coroutine {
    try {
      co_await resume_on(home, fails());
    } catch (const std::runtime_error&) {
      ++caught;
    }
    try {
      co_await resume_on(home, stop_on(c.pop(), source.get_token()));
    } catch (const stopped&) {
      ++caught;
    }
  };
  foreign_coroutine f = body();
  loop.run();
  CHECK(caught == 1);
  source.request_stop();
  loop.run();
  CHECK(caught == 2);
  CHECK(f.is_done());
}

TEST_CASE("destroying a foreign coroutine withdraws what it awaits") {
  foreign_loop loop;
  foreign_executor home([&](auto f) { loop.jobs.emplace_back(f); });
  channel<int> c(1);
  lifetimes l;
  auto inner = [&]() -> task<void> {
    tracked local(l);
    co_await c.pop();
  };
  auto body = [&]() -> foreign_coroutine { co_await resume_on(home, inner()); };
  {
    foreign_coroutine f = body();
    CHECK(l.alive() == 1);
  }
  CHECK(l.alive() == 0);
  CHECK(c.try_push(1));
  CHECK(c.try_pop() == 1);
}

TEST_CASE("an executor without time says so instead of hanging") {
  foreign_loop loop;
  foreign_executor home([&](auto f) { loop.jobs.emplace_back(f); });
  bool refused = false;
  auto body = [&]() -> foreign_coroutine {
    try {
      co_await resume_on(home, sleep_for(1ms));
    } catch (const std::logic_error&) {
      refused = true;
    }
  };
  foreign_coroutine f = body();
  loop.run();
  CHECK(refused);
}

TEST_SUITE_END();
}  // namespace manyworlds::testing
