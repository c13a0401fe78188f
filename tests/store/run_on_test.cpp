#include "manyworlds/store/run_on.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/detail/local_executor.hpp"
#include "store/store_fixture.hpp"

using namespace manyworlds_tests;

TEST_SUITE_BEGIN("run_on");

namespace {

/// Tells on which executor it was destroyed.
struct witness {
  explicit witness(executor*& died_on) : died_on(died_on) {}
  witness(const witness&) = delete;
  witness& operator=(const witness&) = delete;
  ~witness() { died_on = executor::current(); }
  executor*& died_on;
};

}  // namespace

TEST_CASE("the task runs and dies there, the waiter goes on at home with its value") {
  service_thread there(engine_kind::epoll);
  executor* ran_on = nullptr;
  executor* died_on = nullptr;
  const auto visiting = [&]() -> task<std::string> {
    const witness w(died_on);
    co_await sleep_for(1ms);
    ran_on = executor::current();
    co_return "from there";
  };
  const auto awaiting = [&]() -> task<void> {
    executor* const home = executor::current();
    CHECK(co_await run_on(there.home(), visiting()) == "from there");
    CHECK(executor::current() == home);
  };
  sync_wait(awaiting());
  CHECK(ran_on == &there.home());
  CHECK(died_on == &there.home());
}

TEST_CASE("what the task throws is thrown at home") {
  service_thread there(engine_kind::epoll);
  const auto throwing = []() -> task<void> {
    co_await yield();
    throw std::runtime_error("there");
  };
  const auto awaiting = [&]() -> task<void> {
    co_await run_on(there.home(), throwing());
  };
  CHECK_THROWS_WITH(sync_wait(awaiting()), "there");
}

TEST_CASE(
    "cancelling ends the task where it runs, and is over when nothing of it is left") {
  service_thread there(engine_kind::epoll);
  for (int i = 0; i < 200; ++i) {
    executor* died_on = nullptr;
    const auto parked = [&]() -> task<void> {
      const witness w(died_on);
      co_await sleep_for(10s);
    };
    const auto awaiting = [&]() -> task<void> {
      bool gave_up = false;
      try {
        co_await within(run_on(there.home(), parked()), std::chrono::microseconds(i));
      } catch (const timed_out&) {
        gave_up = true;
      }
      CHECK(gave_up);
      CHECK((died_on == &there.home() || died_on == nullptr));
      died_on = nullptr;
    };
    sync_wait(awaiting());
    CHECK(died_on == nullptr);
  }
}

TEST_CASE("a value that wins the race against the cancellation is delivered") {
  service_thread there(engine_kind::epoll);
  int delivered = 0;
  int given_up = 0;
  for (int i = 0; i < 500; ++i) {
    std::atomic<bool> finished{false};
    const auto quick = [&](int spins) -> task<int> {
      for (int k = 0; k < spins; ++k) co_await yield();
      finished = true;
      co_return 7;
    };
    const auto awaiting = [&]() -> task<void> {
      try {
        const int value = co_await within(run_on(there.home(), quick(i % 50)), 20us);
        delivered += value == 7;
      } catch (const timed_out&) {
        CHECK(!finished);
        ++given_up;
      }
    };
    sync_wait(awaiting());
  }
  CHECK(delivered + given_up == 500);
}
