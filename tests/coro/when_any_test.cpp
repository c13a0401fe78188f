#include "manyworlds/coro/when_any.hpp"

#include <vector>

#include "coro/test_executor.hpp"
#include "manyworlds/coro/sleep.hpp"

namespace manyworlds::testing {

TEST_SUITE_BEGIN("when_any");

TEST_CASE("the first value wins and the losers are gone when it is given") {
  test_executor home;
  lifetimes l;
  run(home, [](test_executor& home, lifetimes& l) -> task<void> {
    const auto [a, b, c] = co_await when_any(number_after(1h, 1, l),
                                             number_after(2ms, 2, l), sleep_for(3ms));
    CHECK(l.alive() == 0);
    CHECK_FALSE(a);
    CHECK(b == 2);
    CHECK_FALSE(c);
    CHECK(home.elapsed() == 2ms);
    CHECK(home.timers().empty());
  }(home, l));
  CHECK(l.made == 2);
}

TEST_CASE("a loser that cannot stop at once is waited for and its value delivered") {
  run([]() -> task<void> {
    reluctant slow(5);
    const auto [a, b] = co_await when_any(slow, sleep_for(1ms));
    CHECK(a == 5);
    CHECK(b.has_value());
  });
}

TEST_CASE("one that ends at once keeps what follows from starting") {
  lifetimes l;
  run([&]() -> task<void> {
    auto at_once = []() -> task<int> { co_return 1; };
    const auto [a, b] = co_await when_any(at_once(), number_after(1ms, 2, l));
    CHECK(a == 1);
    CHECK_FALSE(b);
  });
  CHECK(l.made == 0);
}

TEST_CASE("an error that comes first is thrown when the losers have ended") {
  lifetimes l;
  run([&]() -> task<void> {
    auto fails = []() -> task<void> {
      co_await yield();
      throw 4;
    };
    int caught = 0;
    try {
      co_await when_any(number_after(1h, 1, l), fails());
    } catch (int e) {
      caught = e;
      CHECK(l.alive() == 0);
    }
    CHECK(caught == 4);
  });
}

TEST_CASE("a value is not lost to an error of another") {
  run([]() -> task<void> {
    auto fails = []() -> task<void> {
      co_await yield();
      throw 4;
    };
    reluctant slow(5);
    const auto [a, b] = co_await when_any(slow, fails());
    CHECK(a == 5);
    CHECK_FALSE(b);
  });
}

TEST_CASE("cancelled, it unwinds all") {
  test_executor home;
  lifetimes l;
  auto body = [&]() -> task<void> {
    co_await when_any(number_after(1h, 1, l), number_after(2h, 2, l));
    FAIL("went on");
  };
  CHECK(cancel_after(home, body(), 5ms));
  CHECK(l.made == 2);
  CHECK(l.alive() == 0);
}

TEST_CASE("cancelled, it delivers a value that won the race") {
  test_executor home;
  lifetimes l;
  int value = 0;
  auto body = [&]() -> task<void> {
    reluctant slow(6);
    const auto [a, b] = co_await when_any(slow, number_after(1h, 1, l));
    value = a.value_or(0);
    CHECK_FALSE(b);
  };
  CHECK_FALSE(cancel_after(home, body(), 1ms));
  CHECK(value == 6);
  CHECK(l.alive() == 0);
}

TEST_CASE("any number of tasks of one type") {
  lifetimes l;
  run([&]() -> task<void> {
    std::vector<task<int>> tasks;
    for (int i = 1; i < 10; ++i) tasks.push_back(number_after((10 - i) * 1ms, i, l));
    const auto values = co_await when_any(std::move(tasks));
    REQUIRE(values.size() == 9);
    CHECK(values.back() == 9);
    CHECK_FALSE(values.front());
    std::vector<task<void>> none;
    const auto nothing = co_await when_any(std::move(none));
    CHECK(nothing.empty());
  });
  CHECK(l.alive() == 0);
}

TEST_SUITE_END();
}  // namespace manyworlds::testing
