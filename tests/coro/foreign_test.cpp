#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "coro/foreign_coroutine.hpp"
#include "coro/test_executor.hpp"
#include "manyworlds/coro/sync_wait.hpp"
#include "manyworlds/coro/when_all.hpp"
#include "manyworlds/coro/worker_thread.hpp"
#include "manyworlds/detail/foreign_awaitable.hpp"
#include "manyworlds/detail/foreign_continuation.hpp"

namespace manyworlds::testing {
namespace {

// A standard awaitable that is resumed by another thread.
template <class T>
class from_thread {
 public:
  from_thread(worker_thread& where, T value) : where_(&where), value_(std::move(value)) {}
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> h) {
    auto* resuming = new resumption(h);
    where_->post(*resuming);
  }
  T await_resume() { return std::move(value_); }

 private:
  struct resumption final : work {
    explicit resumption(std::coroutine_handle<> h)
        : work([](work& w) noexcept {
            const auto waiter = static_cast<resumption&>(w).waiter;
            delete &static_cast<resumption&>(w);
            waiter.resume();
          }),
          waiter(h) {}
    std::coroutine_handle<> waiter;
  };

  worker_thread* where_;
  T value_;
};

// An operation of an executor of its own, as worlds have.
class ticket_counter {
 public:
  explicit ticket_counter(executor& home) : home_(home) {}
  void give(int value) {
    value_ = value;
    std::exchange(waiter_, nullptr)->resume();
  }
  [[nodiscard]] bool is_awaited() const { return waiter_ != nullptr; }

  class awaiter {
   public:
    explicit awaiter(ticket_counter& t) : t_(t) {}
    executor& await_home() const noexcept { return t_.home_; }
    bool await_ready() const noexcept { return false; }
    void await_start(continuation& k) noexcept { t_.waiter_ = &k; }
    bool await_cancel() noexcept {
      if (!t_.waiter_) return false;
      t_.waiter_ = nullptr;
      return true;
    }
    bool await_must_resume() const noexcept { return true; }
    int await_resume() const noexcept { return t_.value_; }

   private:
    ticket_counter& t_;
  };
  [[nodiscard]] awaitable_by_all<awaiter> next() {
    return awaitable_by_all<awaiter>(*this);
  }

 private:
  executor& home_;
  continuation* waiter_ = nullptr;
  int value_ = 0;
};

foreign_coroutine take(ticket_counter& t, int& value, executor* resumed_on) {
  value = co_await t.next();
  if (resumed_on) value += resumed_on->is_current() ? 0 : 1000;
}

}  // namespace

TEST_SUITE_BEGIN("foreign coroutines");

TEST_CASE("a standard awaitable that resumes elsewhere brings its task home") {
  worker_thread other;
  const auto home = std::this_thread::get_id();
  sync_wait([&]() -> task<void> {
    const std::string s = co_await from_thread<std::string>(other, "text");
    CHECK(s == "text");
    CHECK(std::this_thread::get_id() == home);
    auto [a, b] = co_await when_all(from_thread<int>(other, 1),
                                    from_thread<std::unique_ptr<int>>(other, nullptr));
    CHECK(a == 1);
    CHECK(b == nullptr);
    co_await std::suspend_never{};
  }());
}

TEST_CASE("what a standard awaitable throws is thrown in the task") {
  sync_wait([&]() -> task<void> {
    std::string what;
    struct throwing {
      bool await_ready() const { return true; }
      void await_suspend(std::coroutine_handle<>) const {}
      void await_resume() const { throw std::runtime_error("foreign"); }
    };
    try {
      co_await throwing{};
    } catch (const std::runtime_error& e) {
      what = e.what();
    }
    CHECK(what == "foreign");
  }());
}

TEST_CASE(
    "a foreign coroutine awaits an operation and goes on at the operation's executor") {
  test_executor home;
  ticket_counter t(home);
  int value = 0;
  foreign_coroutine f = take(t, value, &home);
  CHECK_FALSE(t.is_awaited());  // started in the executor's turn, not here
  home.drain();
  REQUIRE(t.is_awaited());
  t.give(7);
  CHECK_FALSE(f.is_done());
  home.drain();
  CHECK(f.is_done());
  CHECK(value == 7);
}

TEST_CASE("a task awaits the same operation natively and can be cancelled") {
  test_executor home;
  ticket_counter t(home);
  auto body = [&]() -> task<void> { co_await t.next(); };
  CHECK(cancel_after(home, body(), 1ms));
  CHECK_FALSE(t.is_awaited());
}

TEST_CASE("destroying a foreign coroutine withdraws its operation") {
  test_executor home;
  ticket_counter t(home);
  int value = 0;
  foreign_coroutine f = take(t, value, nullptr);
  home.drain();
  CHECK(t.is_awaited());
  call destroying([&] { f.destroy(); });
  home.post(destroying);
  home.drain();
  CHECK_FALSE(t.is_awaited());
  CHECK(value == 0);
}

TEST_CASE(
    "destroying a foreign coroutine says so and ends if its operation cannot be "
    "withdrawn") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    std::set_terminate([] { _exit(77); });
    test_executor home;
    ticket_counter t(home);
    int value = 0;
    foreign_coroutine f = take(t, value, nullptr);
    f.destroy();  // its start is in the executor's queue
    _exit(0);
  }
  close(ends[1]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  std::string said(200, ' ');
  const auto size = read(ends[0], said.data(), said.size());
  close(ends[0]);
  REQUIRE(size > 0);
  CHECK(said.find("a coroutine was destroyed while it awaited") != std::string::npos);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 77);
}

TEST_SUITE_END();
}  // namespace manyworlds::testing
