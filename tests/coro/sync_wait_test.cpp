#include "manyworlds/coro/sync_wait.hpp"

#include <chrono>
#include <stdexcept>
#include <thread>

#include "coro/test_executor.hpp"
#include "manyworlds/coro/sleep.hpp"

namespace manyworlds::testing {
namespace {

// Resumes its waiter from a thread of its own.
class on_other_thread {
 public:
  bool await_ready() const noexcept { return false; }
  void await_start(continuation& k) {
    thread_ = std::thread([&k] { k.resume(); });
  }
  bool await_cancel() const noexcept { return false; }
  bool await_must_resume() const noexcept { return true; }
  void await_resume() { thread_.join(); }

 private:
  std::thread thread_;
};

}  // namespace

TEST_SUITE_BEGIN("sync_wait");

TEST_CASE("it gives the task's value, or throws what it threw") {
  auto gives = []() -> task<int> { co_return 3; };
  auto throws = []() -> task<int> {
    throw std::runtime_error("no");
    co_return 1;
  };
  CHECK(sync_wait(gives()) == 3);
  CHECK_THROWS_AS(sync_wait(throws()), std::runtime_error);
}

TEST_CASE("it sleeps until a timer is due, not less") {
  const auto begin = std::chrono::steady_clock::now();
  sync_wait(sleep_for(5ms));
  CHECK(std::chrono::steady_clock::now() - begin >= 5ms);
}

TEST_CASE("a resumption from another thread comes home") {
  const auto home = std::this_thread::get_id();
  sync_wait([&]() -> task<void> {
    for (int i = 0; i < 50; ++i) {
      on_other_thread op;
      co_await op;
      CHECK(std::this_thread::get_id() == home);
    }
  }());
}

TEST_CASE("inside a task it throws, and does not block the thread of all tasks") {
  auto inner = []() -> task<void> { co_return; };
  run([&]() -> task<void> {
    CHECK_THROWS_AS(sync_wait(inner()), std::logic_error);
    co_return;
  });
}

TEST_SUITE_END();
}  // namespace manyworlds::testing
