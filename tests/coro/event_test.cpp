#include "manyworlds/coro/event.hpp"

#include <memory>
#include <stdexcept>
#include <string>

#include "coro/test_executor.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/within.hpp"

namespace manyworlds::testing {
TEST_SUITE_BEGIN("event");

TEST_CASE("set lets all waiters go on in the order they came") {
  std::string order;
  run([&]() -> task<void> {
    event e;
    auto waits = [&](char name) -> task<void> {
      co_await e.wait();
      order += name;
    };
    co_await scope::run([&](scope& s) -> task<void> {
      s.spawn(waits, 'a');
      s.spawn(waits, 'b');
      s.spawn(waits, 'c');
      co_await sleep_for(1ms);
      CHECK(order.empty());
      e.set();
      e.reset();
    });
    CHECK_FALSE(e.is_set());
    e.set();
    co_await e;
  });
  CHECK(order == "abc");
}

TEST_CASE("a waiter that gives up, first, in the middle or last, is not woken") {
  std::string order;
  run([&]() -> task<void> {
    event e;
    auto waits = [&](char name, duration limit) -> task<void> {
      try {
        co_await within(e, limit);
        order += name;
      } catch (const timed_out&) {}
    };
    co_await scope::run([&](scope& s) -> task<void> {
      s.spawn(waits, 'a', 1ms);
      s.spawn(waits, 'b', 1h);
      s.spawn(waits, 'c', 1ms);
      s.spawn(waits, 'd', 1h);
      s.spawn(waits, 'e', 1ms);
      co_await sleep_for(2ms);
      e.set();
    });
  });
  CHECK(order == "bd");
}

TEST_CASE("a waiter cancelled after the event was set goes on") {
  test_executor home;
  bool went_on = false;
  event e;
  auto body = [&]() -> task<void> {
    co_await e;
    went_on = true;
  };
  task<void> t = body();
  root waiter(home);
  waiter.begin(t.promise());
  home.drain();
  call set_and_cancel([&] {
    e.set();
    CHECK_FALSE(waiter.cancel());
  });
  home.post(set_and_cancel);
  home.drain();
  CHECK(went_on);
}

TEST_CASE("who waits for an event that is destroyed ends with invalid_argument") {
  test_executor home;
  auto e = std::make_unique<event>();
  int refused = 0;
  auto body = [&](event& on) -> task<void> {
    try {
      co_await on;
    } catch (const std::invalid_argument&) {
      ++refused;
    }
  };
  task<void> first = body(*e);
  task<void> second = body(*e);
  root one(home);
  root other(home);
  one.begin(first.promise());
  other.begin(second.promise());
  home.drain();
  call both([&] {
    e.reset();
    CHECK_FALSE(one.cancel());
  });
  home.post(both);
  home.drain();
  CHECK(one.has_ended());
  CHECK(other.has_ended());
  CHECK(refused == 2);
}

TEST_CASE("an event that was set may go before its waiters go on") {
  test_executor home;
  auto e = std::make_unique<event>();
  bool went_on = false;
  auto body = [&](event& on) -> task<void> {
    co_await on;
    went_on = true;
  };
  task<void> t = body(*e);
  root waiter(home);
  waiter.begin(t.promise());
  home.drain();
  call both([&] {
    e->set();
    e.reset();
  });
  home.post(both);
  home.drain();
  CHECK(went_on);
}

TEST_CASE("a wait that has a name may be awaited again, behind none that stood there") {
  std::string order;
  run([&]() -> task<void> {
    event e;
    auto twice = [&]() -> task<void> {
      auto wait = e.wait();
      co_await wait;
      co_await wait;
      order += 'a';
    };
    auto once = [&]() -> task<void> {
      co_await e;
      order += 'b';
    };
    co_await scope::run([&](scope& s) -> task<void> {
      s.spawn(twice);
      s.spawn(once);
      co_await sleep_for(1ms);
      e.set();
      e.reset();
      // Now it waits alone: the one that stood behind it has gone on.
      co_await sleep_for(1ms);
      e.set();
    });
  });
  CHECK(order == "ba");
}

TEST_SUITE_END();
}  // namespace manyworlds::testing
