#include "manyworlds/coro/task.hpp"

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "coro/test_executor.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/shield.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/stop.hpp"
#include "manyworlds/coro/sync_wait.hpp"
#include "manyworlds/coro/when_all.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/detail/local_executor.hpp"

namespace manyworlds::testing {
namespace {

task<int> descend(int depth) {
  if (depth == 0) co_return 0;
  const int below = co_await descend(depth - 1);
  co_return below + 1;
}

task<void> fail_at(int depth, lifetimes& l) {
  tracked local(l);
  if (depth == 0) throw std::runtime_error("deep");
  co_await fail_at(depth - 1, l);
}

task<void> wait_at(int depth, lifetimes& l) {
  tracked local(l, static_cast<char>('0' + depth));
  if (depth == 0) {
    co_await sleep_for(1h);
  } else {
    co_await wait_at(depth - 1, l);
  }
}

}  // namespace

TEST_SUITE_BEGIN("task");

TEST_CASE("a task is one pointer and does nothing before it is awaited") {
  static_assert(sizeof(task<std::string>) == sizeof(void*));
  lifetimes l;
  bool began = false;
  {
    auto body = [](tracked, bool& began) -> task<void> {
      began = true;
      co_return;
    };
    task<void> t = body(tracked(l), began);
    CHECK(l.alive() == 1);
  }
  CHECK_FALSE(began);
  CHECK(l.alive() == 0);
}

TEST_CASE("values, moved-only values, references and braces come back") {
  run([]() -> task<void> {
    auto number = []() -> task<int> { co_return 7; };
    auto owner = []() -> task<std::unique_ptr<int>> {
      co_return std::make_unique<int>(8);
    };
    auto pair = []() -> task<std::pair<int, std::string>> { co_return {9, "nine"}; };
    auto same = [](int& x) -> task<int&> { co_return x; };
    const int n = co_await number();
    CHECK(n == 7);
    const auto p = co_await owner();
    CHECK(*p == 8);
    const auto [i, s] = co_await pair();
    CHECK(i == 9);
    CHECK(s == "nine");
    int x = 0;
    int& y = co_await same(x);
    CHECK(&y == &x);
  });
}

TEST_CASE("a child's locals end before its value is used") {
  lifetimes l;
  run([&]() -> task<void> {
    auto child = [&](tracked) -> task<int> {
      tracked local(l);
      co_return 1;
    };
    const int alive = co_await child(tracked(l)) + l.alive();
    CHECK(alive <= 2);  // at most the temporary that was the argument
    CHECK(l.alive() == 0);
  });
}

TEST_CASE("an exception passes every level and unwinds each") {
  lifetimes l;
  run([&]() -> task<void> {
    std::string what;
    try {
      co_await fail_at(50, l);
    } catch (const std::runtime_error& e) {
      what = e.what();
    }
    CHECK(what == "deep");
    CHECK(l.made == 51);
    CHECK(l.alive() == 0);
  });
}

TEST_CASE("a hundred thousand nested awaits need no native stack") {
  const int depth = run(descend(100'000));
  CHECK(depth == 100'000);
}

TEST_CASE("a hundred thousand awaits in a row need no native stack") {
  run([]() -> task<void> {
    auto one = []() -> task<int> { co_return 1; };
    int sum = 0;
    for (int i = 0; i < 100'000; ++i) sum += co_await one();
    CHECK(sum == 100'000);
  });
}

TEST_CASE("a cancelled task is not resumed and unwinds leaf first") {
  test_executor home;
  lifetimes l;
  CHECK(cancel_after(home, wait_at(5, l), 1ms));
  CHECK(l.order == "012345");
  CHECK(l.made == 6);
  CHECK(l.alive() == 0);
}

TEST_CASE("a task cancelled before it begins never begins") {
  test_executor home;
  lifetimes l;
  task<void> t = wait_at(1, l);
  root waiter(home);
  waiter.begin(t.promise());
  // Before the drain the task has not begun: it is in the queue.
  CHECK_FALSE(waiter.cancel());
  home.drain();
  CHECK(waiter.has_ended());
  CHECK(t.promise().outcome() == task_outcome::cancelled);
  CHECK(l.made == 0);
}

TEST_CASE("a task cancelled while it runs is cancelled at its next await") {
  test_executor home;
  lifetimes l;
  bool went_on = false;
  task<void> t;
  root waiter(home);
  auto body = [&]() -> task<void> {
    tracked local(l);
    CHECK_FALSE(waiter.cancel());
    went_on = true;
    auto never = [&]() -> task<void> {
      FAIL("started");
      co_return;
    };
    co_await never();
    FAIL("went on");
  };
  t = body();
  waiter.begin(t.promise());
  home.drain();
  CHECK(waiter.has_ended());
  CHECK(went_on);
  CHECK(t.promise().outcome() == task_outcome::cancelled);
  t.reset();
  CHECK(l.alive() == 0);
}

TEST_CASE("a value that won the race is delivered, and the cancellation taken after it") {
  test_executor home;
  int value = 0;
  auto body = [&]() -> task<void> {
    reluctant r;
    value = co_await r;
    co_await yield();
    FAIL("went on");
  };
  CHECK(cancel_after(home, body(), 1ms));
  CHECK(value == 42);
}

namespace {

task<int> three() { co_return 3; }
task<void> nothing() { co_return; }

}  // namespace

TEST_CASE("a task awaited twice, moved from or without a coroutine is invalid_argument") {
  run([]() -> task<void> {
    task<int> t = three();
    const int first = co_await std::move(t);
    CHECK(first == 3);
    CHECK(!t);
    int caught = 0;
    // NOLINTBEGIN(bugprone-use-after-move)
    for (int how = 0; how < 8; ++how) {
      try {
        if (how == 0) co_await std::move(t);
        if (how == 1) co_await task<void>();
        if (how == 2) co_await within(std::move(t), 1s);
        if (how == 3) co_await stop_on(std::move(t), std::stop_token());
        if (how == 4) co_await shield(std::move(t));
        if (how == 5) co_await when_all(three(), std::move(t));
        if (how == 6) co_await when_any(std::move(t), three());
        if (how == 7) co_await when_all(std::vector<task<int>>(2));
      } catch (const std::invalid_argument& e) {
        ++caught;
        CHECK(std::string(e.what()).find("this task is empty") == 0);
      }
    }
    // NOLINTEND(bugprone-use-after-move)
    CHECK(caught == 8);
  });
}

TEST_CASE("an adapter that is awaited a second time finds its task gone, and says so") {
  test_executor home;
  run(home, []() -> task<void> {
    auto limited = within(three(), 1s);
    co_await std::move(limited);
    bool caught = false;
    try {
      co_await std::move(limited);  // NOLINT(bugprone-use-after-move)
    } catch (const std::invalid_argument&) {
      caught = true;
    }
    CHECK(caught);
  }());
  // The deadline of the refused one is not armed: time need not pass to it.
  CHECK(home.elapsed() == duration::zero());
}

TEST_CASE("a scope refuses an empty task, and its children end as usual") {
  run([]() -> task<void> {
    int ended = 0;
    bool caught = false;
    const auto child = [&]() -> task<void> {
      co_await yield();
      ++ended;
    };
    co_await scope::run([&](scope& s) -> task<void> {
      s.spawn(child());
      try {
        s.spawn(task<void>());
      } catch (const std::invalid_argument&) {
        caught = true;
      }
      co_return;
    });
    CHECK(caught);
    CHECK(ended == 1);
    caught = false;
    try {
      co_await scope::run([](scope&) { return task<void>(); });
    } catch (const std::invalid_argument&) {
      caught = true;
    }
    CHECK(caught);
  });
  CHECK_THROWS_AS(sync_wait(task<void>()), std::invalid_argument);
  local_executor home;
  CHECK_THROWS_AS(home.run(task<int>()), std::invalid_argument);
  CHECK_NOTHROW(home.run(nothing()));
}

TEST_SUITE_END();
}  // namespace manyworlds::testing
