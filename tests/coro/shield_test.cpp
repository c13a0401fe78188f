#include "manyworlds/coro/shield.hpp"

#include "coro/test_executor.hpp"
#include "manyworlds/coro/sleep.hpp"

namespace manyworlds::testing {
TEST_SUITE_BEGIN("shield");

TEST_CASE("what is shielded runs to its end and the cancellation is taken after it") {
  test_executor home;
  bool finished = false, delivered = false;
  auto body = [&]() -> task<void> {
    auto work = [&]() -> task<int> {
      co_await sleep_for(9ms);
      finished = true;
      co_return 1;
    };
    const int value = co_await shield(work());
    delivered = value == 1;
    co_await yield();
    FAIL("went on");
  };
  CHECK(cancel_after(home, body(), 2ms));
  CHECK(finished);
  CHECK(delivered);
  CHECK(home.elapsed() == 9ms);
}

TEST_CASE("a task that is cancelled already still runs what is shielded") {
  test_executor home;
  bool finished = false;
  auto body = [&]() -> task<void> {
    co_await shield(sleep_for(4ms));
    auto work = [&]() -> task<void> {
      co_await sleep_for(1ms);
      finished = true;
    };
    co_await shield(work());
    co_await yield();
    FAIL("went on");
  };
  CHECK(cancel_after(home, body(), 2ms));
  CHECK(finished);
}

TEST_SUITE_END();
}  // namespace manyworlds::testing
