#include "manyworlds/coro/within.hpp"

#include <string>

#include "coro/test_executor.hpp"
#include "manyworlds/coro/sleep.hpp"

namespace manyworlds::testing {
namespace {

task<std::string> answer_after(duration span, lifetimes& l) {
  tracked local(l);
  co_await sleep_for(span);
  co_return "answer";
}

}  // namespace

TEST_SUITE_BEGIN("within");

TEST_CASE("an operation that ends in time gives its value and leaves no timer") {
  test_executor home;
  lifetimes l;
  run(home, [](test_executor& home, lifetimes& l) -> task<void> {
    std::string a = co_await within(answer_after(3ms, l), 1h);
    CHECK(a == "answer");
    CHECK(home.elapsed() == 3ms);
    CHECK(home.timers().empty());
  }(home, l));
}

TEST_CASE("timed_out is thrown when nothing of the operation is left") {
  test_executor home;
  lifetimes l;
  run(home, [](test_executor& home, lifetimes& l) -> task<void> {
    bool late = false;
    try {
      co_await within(answer_after(1h, l), 3ms);
    } catch (const timed_out&) {
      late = true;
      CHECK(l.made == 1);
      CHECK(l.alive() == 0);
    }
    CHECK(late);
    CHECK(home.elapsed() == 3ms);
    CHECK(home.timers().empty());
  }(home, l));
}

TEST_CASE("a value that won the race against the deadline is given") {
  run([]() -> task<void> {
    reluctant r;
    const int value = co_await within(r, 3ms);
    CHECK(value == 42);
  });
}

TEST_CASE("a cancelled deadline unwinds the operation and disarms its timer") {
  test_executor home;
  lifetimes l;
  auto waits = [&]() -> task<void> {
    co_await within(answer_after(1h, l), 30min);
    FAIL("went on");
  };
  CHECK(cancel_after(home, waits(), 1ms));
  CHECK(home.elapsed() == 1ms);
  CHECK(l.made == 1);
  CHECK(l.alive() == 0);
}

TEST_CASE("an operation that ends at once needs no time") {
  test_executor home;
  run(home, [](test_executor& home) -> task<void> {
    auto at_once = []() -> task<int> { co_return 1; };
    const int value = co_await within(at_once(), 0ms);
    CHECK(value == 1);
    CHECK(home.timers().empty());
  }(home));
}

TEST_CASE("an error of the operation passes through") {
  run([]() -> task<void> {
    auto fails = []() -> task<void> {
      co_await yield();
      throw 3;
    };
    int caught = 0;
    try {
      co_await within(fails(), 1s);
    } catch (int e) {
      caught = e;
    }
    CHECK(caught == 3);
  });
}

TEST_CASE("the tighter of two nested deadlines wins") {
  test_executor home;
  lifetimes l;
  run(home, [](test_executor& home, lifetimes& l) -> task<void> {
    bool late = false;
    try {
      co_await within(within(answer_after(1h, l), 9ms), 2ms);
    } catch (const timed_out&) {
      late = true;
    }
    CHECK(late);
    CHECK(home.elapsed() == 2ms);
  }(home, l));
  CHECK(l.alive() == 0);
}

TEST_CASE("a reference passes through a deadline") {
  run([]() -> task<void> {
    int x = 1;
    auto give = [](int& i) -> task<int&> { co_return i; };
    int& y = co_await within(give(x), 1s);
    CHECK(&y == &x);
  });
}

TEST_SUITE_END();
}  // namespace manyworlds::testing
