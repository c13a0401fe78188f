// Call deadline: told at most once, and never after its end, whatever other threads do.
#include "manyworlds/detail/call_deadline.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "manyworlds/coro/channel.hpp"
#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/sync_wait.hpp"

namespace manyworlds {

TEST_SUITE_BEGIN("serve");

namespace {

using namespace std::chrono_literals;

/// What a deadline has told.
struct told {
  void hear(cause why) noexcept {
    ++times;
    last = why;
    changed.set();
  }

  event changed;
  int times = 0;
  cause last = cause::none;
  member_deadline<&told::hear> deadline{*this};
};

task<void> begin(told& t, duration limit, std::stop_token token) {
  executor& home = *executor::current();
  t.deadline.begin(home, later(home.now(), limit), std::move(token));
  co_return;
}

}  // namespace

TEST_CASE("a call's deadline tells of its time, or of the token, whichever is first") {
  auto watching = []() -> task<void> {
    told late;
    co_await begin(late, 5ms, {});
    co_await late.changed;
    CHECK(late.last == cause::timed_out);
    told stopped_one;
    std::stop_source gone;
    co_await begin(stopped_one, 1h, gone.get_token());
    gone.request_stop();
    co_await stopped_one.changed;
    CHECK(stopped_one.last == cause::cancelled);
    told before;
    co_await begin(before, duration::max(), gone.get_token());
    co_await before.changed;
    CHECK(before.last == cause::cancelled);
  };
  sync_wait(watching());
}

TEST_CASE(
    "a deadline that ends while another thread triggers its token is told at most once, "
    "and nothing afterwards") {
  constexpr int rounds = 2000;
  channel<std::stop_source> to_stop(rounds);
  std::atomic<int> triggered = 0;
  std::thread stopper([&] {
    for (int left = rounds; left > 0;) {
      if (auto next = to_stop.try_pop()) {
        next->request_stop();
        ++triggered;
        --left;
      } else {
        std::this_thread::yield();
      }
    }
  });
  int stopped_first = 0;
  auto watching = [&]() -> task<void> {
    for (int round = 0; round < rounds; ++round) {
      std::stop_source gone;
      auto t = std::make_unique<told>();
      co_await begin(*t, 1h, gone.get_token());
      (void)to_stop.try_push(gone);
      if (round % 4 == 0) {
        co_await t->changed;
      } else {
        for (int turns = round % 50; turns > 0; --turns) co_await yield();
      }
      t->deadline.end();
      const int times = t->times;
      co_await yield();
      CHECK(times <= 1);
      CHECK(t->times == times);
      stopped_first += times;
    }
    // What was posted to those that are gone arrives before their home ends.
    while (triggered < rounds) co_await yield();
    co_await yield();
  };
  sync_wait(watching());
  stopper.join();
  CHECK(stopped_first >= rounds / 4);
}

TEST_SUITE_END();

}  // namespace manyworlds
