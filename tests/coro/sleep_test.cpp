#include "manyworlds/coro/sleep.hpp"

#include <vector>

#include "coro/test_executor.hpp"

namespace manyworlds::testing {
TEST_SUITE_BEGIN("sleep");

TEST_CASE("a sleep ends exactly at its time") {
  test_executor home;
  run(home, [](test_executor& home) -> task<void> {
    co_await sleep_for(5ms);
    CHECK(home.elapsed() == 5ms);
    co_await sleep_until(time_point(7ms));
    CHECK(home.elapsed() == 7ms);
    co_await sleep_until(time_point(1ms));
    CHECK(home.elapsed() == 7ms);
  }(home));
}

TEST_CASE("a sleep cancelled half way unwinds its task and disarms its timer") {
  test_executor home;
  lifetimes l;
  const bool was_cancelled = cancel_after(
      home,
      [](lifetimes& l) -> task<void> {
        tracked local(l);
        co_await sleep_for(1h);
        FAIL("resumed");
      }(l),
      2ms);
  CHECK(was_cancelled);
  CHECK(home.elapsed() == 2ms);
  CHECK(home.timers().empty());
  CHECK(l.made == 1);
  CHECK(l.alive() == 0);
}

TEST_CASE("a sleep without end does not overflow the clock") {
  CHECK(later(time_point(1h), duration::max()) == time_point::max());
}

TEST_CASE("a yield lets what was ready before run first") {
  test_executor home;
  std::vector<int> order;
  auto count = [&](int from) -> task<void> {
    order.push_back(from);
    co_await yield();
    order.push_back(from + 1);
  };
  task<void> a = count(10);
  task<void> b = count(20);
  root ra(home), rb(home);
  ra.begin(a.promise());
  rb.begin(b.promise());
  home.drain();
  CHECK(order == std::vector{10, 20, 11, 21});
}

TEST_SUITE_END();
}  // namespace manyworlds::testing
