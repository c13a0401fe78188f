#include "manyworlds/coro/stop.hpp"

#include <atomic>
#include <stop_token>
#include <thread>

#include "coro/test_executor.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/sync_wait.hpp"
#include "manyworlds/coro/within.hpp"

namespace manyworlds::testing {
namespace {

task<int> number_after(duration span, lifetimes& l) {
  tracked local(l);
  co_await sleep_for(span);
  co_return 1;
}

}  // namespace

TEST_SUITE_BEGIN("stop");

TEST_CASE("stopped is thrown when nothing of the operation is left") {
  lifetimes l;
  test_executor home;
  run(home, [](test_executor& home, lifetimes& l) -> task<void> {
    std::stop_source source;
    co_await scope::run([&](scope& s) -> task<void> {
      s.spawn([&]() -> task<void> {
        co_await sleep_for(2ms);
        source.request_stop();
      });
      bool was_stopped = false;
      try {
        co_await stop_on(number_after(1h, l), source.get_token());
      } catch (const stopped&) {
        was_stopped = true;
        CHECK(l.alive() == 0);
      }
      CHECK(was_stopped);
    });
    CHECK(home.elapsed() == 2ms);
  }(home, l));
  CHECK(l.made == 1);
}

TEST_CASE("with a stop requested before, nothing is started") {
  lifetimes l;
  run([&]() -> task<void> {
    std::stop_source source;
    source.request_stop();
    bool was_stopped = false;
    try {
      co_await stop_on(number_after(1ms, l), source.get_token());
    } catch (const stopped&) {
      was_stopped = true;
    }
    CHECK(was_stopped);
  });
  CHECK(l.made == 0);
}

TEST_CASE(
    "an operation that ends first gives its value, also with a token that cannot stop") {
  lifetimes l;
  run([&]() -> task<void> {
    std::stop_source source;
    const int a = co_await stop_on(number_after(1ms, l), source.get_token());
    const int b = co_await stop_on(number_after(1ms, l), std::stop_token());
    CHECK(a + b == 2);
    source.request_stop();
  });
}

TEST_CASE("a value that won the race against the stop is given") {
  run([]() -> task<void> {
    std::stop_source source;
    reluctant slow(5);
    int value = 0;
    co_await scope::run([&](scope& s) -> task<void> {
      s.spawn([&]() -> task<void> {
        source.request_stop();
        co_return;
      });
      value = co_await stop_on(slow, source.get_token());
    });
    CHECK(value == 5);
  });
}

TEST_CASE("an operation that requests its own stop and ends gives its value") {
  run([]() -> task<void> {
    std::stop_source source;
    auto own = [&]() -> task<int> {
      source.request_stop();
      co_return 3;
    };
    const int value = co_await stop_on(own(), source.get_token());
    CHECK(value == 3);
  });
}

TEST_CASE("cancelled with the stop on its way, it is cancelled") {
  test_executor home;
  lifetimes l;
  std::stop_source source;
  auto body = [&]() -> task<void> {
    co_await stop_on(number_after(1h, l), source.get_token());
    FAIL("went on");
  };
  task<void> t = body();
  root waiter(home);
  waiter.begin(t.promise());
  home.drain_until(time_point(1ms));
  call both([&] {
    source.request_stop();
    CHECK_FALSE(waiter.cancel());
  });
  home.post(both);
  home.drain();
  CHECK(waiter.has_ended());
  CHECK(t.promise().outcome() == task_outcome::cancelled);
  t.reset();
  CHECK(l.alive() == 0);
}

TEST_CASE("cancelled before the stop, it leaves no callback behind") {
  test_executor home;
  lifetimes l;
  std::stop_source source;
  auto body = [&]() -> task<void> {
    co_await stop_on(number_after(1h, l), source.get_token());
  };
  CHECK(cancel_after(home, body(), 1ms));
  source.request_stop();
  CHECK(l.alive() == 0);
}

TEST_CASE("a stop from another thread that races the end leaves one outcome") {
  lifetimes l;
  int values = 0, stops = 0;
  constexpr int rounds = 300;
  sync_wait([&]() -> task<void> {
    for (int i = 0; i < rounds; ++i) {
      std::stop_source source;
      std::atomic<bool> go{false};
      std::thread racer([&] {
        while (!go.load(std::memory_order_acquire)) std::this_thread::yield();
        source.request_stop();
      });
      auto op = [&]() -> task<void> {
        tracked local(l);
        go.store(true, std::memory_order_release);
        for (int turns = 0; turns < i % 50; ++turns) co_await yield();
      };
      try {
        co_await stop_on(op(), source.get_token());
        ++values;
      } catch (const stopped&) {
        ++stops;
      }
      CHECK(l.alive() == 0);
      racer.join();
    }
  }());
  CHECK(values + stops == rounds);
}

TEST_SUITE_END();
}  // namespace manyworlds::testing
