#include "manyworlds/coro/when_all.hpp"

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "coro/test_executor.hpp"
#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sleep.hpp"

namespace manyworlds::testing {
namespace {

task<void> throw_after(duration span, int what) {
  co_await sleep_for(span);
  throw what;
}

}  // namespace

TEST_SUITE_BEGIN("when_all");

TEST_CASE("all values come, in the order of the arguments") {
  test_executor home;
  lifetimes l;
  run(home, [](test_executor& home, lifetimes& l) -> task<void> {
    auto owner = []() -> task<std::unique_ptr<int>> {
      co_return std::make_unique<int>(3);
    };
    const auto [a, b, c, d] = co_await when_all(number_after(5ms, 1, l), sleep_for(9ms),
                                                number_after(2ms, 2, l), owner());
    CHECK(a == 1);
    static_assert(std::is_same_v<decltype(b), const std::monostate>);
    CHECK(c == 2);
    CHECK(*d == 3);
    CHECK(home.elapsed() == 9ms);
    CHECK(l.alive() == 0);
  }(home, l));
}

TEST_CASE("operations start left to right") {
  std::string order;
  run([&]() -> task<void> {
    auto named = [&](char name) -> task<void> {
      order += name;
      co_await yield();
    };
    co_await when_all(named('a'), named('b'), named('c'));
  });
  CHECK(order == "abc");
}

TEST_CASE("the first failure cancels the others and is thrown when they have ended") {
  test_executor home;
  lifetimes l;
  run(home, [](test_executor& home, lifetimes& l) -> task<void> {
    int caught = 0;
    try {
      co_await when_all(number_after(1h, 1, l), throw_after(2ms, 7), throw_after(3ms, 8));
    } catch (int e) {
      caught = e;
      CHECK(l.alive() == 0);
    }
    CHECK(caught == 7);
    CHECK(home.elapsed() == 2ms);
    CHECK(l.made == 1);
  }(home, l));
}

TEST_CASE("a failure at the start keeps what follows from starting") {
  lifetimes l;
  run([&]() -> task<void> {
    auto fails = []() -> task<void> {
      throw 1;
      co_return;
    };
    bool caught = false;
    try {
      co_await when_all(number_after(1h, 1, l), fails(), number_after(1h, 1, l));
    } catch (int) {
      caught = true;
    }
    CHECK(caught);
  });
  CHECK(l.made == 1);
  CHECK(l.alive() == 0);
}

TEST_CASE("cancelled, it cancels all and nothing is left") {
  test_executor home;
  lifetimes l;
  auto body = [&]() -> task<void> {
    co_await when_all(number_after(1ms, 1, l), number_after(1h, 2, l),
                      number_after(1h, 2, l));
    FAIL("went on");
  };
  CHECK(cancel_after(home, body(), 5ms));
  CHECK(l.made == 3);
  CHECK(l.alive() == 0);
}

TEST_CASE("cancelled, it gives its values if all of them won the race") {
  test_executor home;
  int sum = 0;
  auto body = [&]() -> task<void> {
    reluctant one(1), two(2);
    const auto [a, b] = co_await when_all(one, two);
    sum = a + b;
  };
  CHECK_FALSE(cancel_after(home, body(), 1ms));
  CHECK(sum == 3);
}

TEST_CASE("a child that cancels everything around it while it is started ends it all") {
  lifetimes l;
  run([&]() -> task<void> {
    co_await scope::run([&](scope& s) -> task<void> {
      s.spawn([&]() -> task<void> {
        auto canceller = [&]() -> task<void> {
          s.cancel();
          co_return;
        };
        co_await when_all(number_after(1h, 1, l), canceller(), number_after(1h, 1, l));
        FAIL("went on");
      });
      co_return;
    });
  });
  CHECK(l.made == 1);
  CHECK(l.alive() == 0);
}

TEST_CASE("any number of tasks of one type") {
  lifetimes l;
  run([&]() -> task<void> {
    std::vector<task<int>> tasks;
    for (int i = 0; i < 100; ++i) tasks.push_back(number_after((100 - i) * 1ms, i, l));
    const std::vector<int> values = co_await when_all(std::move(tasks));
    REQUIRE(values.size() == 100);
    for (int i = 0; i < 100; ++i) CHECK(values[static_cast<std::size_t>(i)] == i);
    std::vector<task<void>> nothing;
    co_await when_all(std::move(nothing));
  });
  CHECK(l.made == 100);
  CHECK(l.alive() == 0);
}

TEST_CASE("references stay references and a named awaitable is not moved") {
  run([]() -> task<void> {
    int x = 1;
    auto same = [](int& i) -> task<int&> { co_return i; };
    event e;
    e.set();
    auto [r, set] = co_await when_all(same(x), e);
    CHECK(&r.get() == &x);
    (void)set;
  });
}

TEST_SUITE_END();
}  // namespace manyworlds::testing
