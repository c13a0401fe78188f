// A home in virtual time: a test of scheduling takes no time, and a hang is a message.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <concepts>
#include <exception>
#include <string>
#include <utility>

#include "manyworlds/coro/executor.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/detail/root.hpp"

namespace manyworlds::testing {

using namespace std::chrono_literals;

/// Runs work first-in first-out; when none is left, time jumps to the next timer. One
/// thread.
class test_executor final : public executor {
 public:
  void schedule(work& w) noexcept override { ready_.push(w); }
  void post(work& w) noexcept override { ready_.push(w); }
  [[nodiscard]] time_point now() const noexcept override { return now_; }
  [[nodiscard]] duration elapsed() const noexcept { return now_.time_since_epoch(); }

  /// Runs until neither work nor timers are left.
  void drain() { drain_until(time_point::max()); }
  /// The same, but time does not go beyond `end`.
  void drain_until(time_point end) {
    const turn_scope here(*this);
    for (;;) {
      while (work* w = ready_.pop()) w->run();
      const auto next = timers().next();
      if (!next || *next > end) break;
      now_ = std::max(now_, *next);
      timers().expire(now_, 1);
    }
    if (end != time_point::max()) now_ = std::max(now_, end);
  }

 private:
  work_queue ready_;
  time_point now_{};
};

/// A test's own hold of a task: started, perhaps cancelled, and asked whether it ended.
class root {
 public:
  explicit root(executor& home) noexcept
      : root_(
            home, [](void* ended) noexcept { *static_cast<bool*>(ended) = true; },
            &has_ended_) {}

  void begin(promise_base& task) noexcept { root_.start(task); }
  /// As an owner would, on the home's thread: true if it has ended now.
  bool cancel() noexcept {
    if (root_.cancel()) has_ended_ = true;
    return has_ended_;
  }
  [[nodiscard]] bool has_ended() const noexcept { return has_ended_; }

 private:
  bool has_ended_ = false;
  task_root root_;
};

/// Calls a function from within the home's queue.
template <class F>
class call final : public work {
 public:
  explicit call(F f)
      : work([](work& w) noexcept { static_cast<call&>(w).f_(); }), f_(std::move(f)) {}

 private:
  F f_;
};

/// Runs a task to its end and gives what it gives; a task that hangs fails the test by
/// name.
template <class T>
T run(test_executor& home, task<T> t) {
  root waiter(home);
  waiter.begin(t.promise());
  home.drain();
  REQUIRE_MESSAGE(waiter.has_ended(), "nothing is left to do and the task still waits");
  REQUIRE_MESSAGE(t.promise().outcome() != task_outcome::cancelled,
                  "the task was cancelled");
  return t.promise().take_result();
}

template <class T>
T run(task<T> t) {
  test_executor home;
  return run(home, std::move(t));
}

/// Runs a coroutine function or lambda as the whole of a test.
template <class F>
requires std::invocable<F&>
auto run(F&& body) { return run(body()); }

/// Runs a task for `span`, cancels it then, and lets it end; true if it ended cancelled.
template <class T>
bool cancel_after(test_executor& home, task<T> t, duration span) {
  root waiter(home);
  waiter.begin(t.promise());
  home.drain_until(home.now() + span);
  call cancelling([&] { waiter.cancel(); });
  home.post(cancelling);
  home.drain();
  REQUIRE_MESSAGE(waiter.has_ended(), "nothing is left to do and the task still waits");
  return t.promise().outcome() == task_outcome::cancelled;
}

/// Counts the objects that are alive, and the order in which named ones end.
struct lifetimes {
  int made = 0;
  int ended = 0;
  std::string order;
  [[nodiscard]] int alive() const noexcept { return made - ended; }
};

/// Ends with a value one turn after it is asked to stop: a value that wins the race.
class reluctant final : work {
 public:
  explicit reluctant(int value = 42)
      : work([](work& w) noexcept { static_cast<reluctant&>(w).waiter_->resume(); }),
        value_(value) {}
  bool await_ready() const noexcept { return false; }
  void await_start(continuation& k) noexcept { waiter_ = &k; }
  bool await_cancel() noexcept {
    waiter_->home().schedule(*this);
    return false;
  }
  bool await_must_resume() const noexcept { return true; }
  int await_resume() const noexcept { return value_; }

 private:
  int value_;
  continuation* waiter_ = nullptr;
};

class tracked {
 public:
  explicit tracked(lifetimes& l, char name = '.') : l_(&l), name_(name) { ++l_->made; }
  tracked(tracked&& other) noexcept
      : l_(other.l_), name_(std::exchange(other.name_, '.')) {
    ++l_->made;
  }
  tracked(const tracked& other) : l_(other.l_), name_(other.name_) { ++l_->made; }
  tracked& operator=(const tracked&) = default;
  ~tracked() {
    ++l_->ended;
    if (name_ != '.') l_->order += name_;
  }

 private:
  lifetimes* l_;
  char name_;
};

/// Gives the number after a time; `l` counts its frame.
inline task<int> number_after(duration span, int value, lifetimes& l) {
  const tracked local(l);
  co_await sleep_for(span);
  co_return value;
}

}  // namespace manyworlds::testing
