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
#include "manyworlds/coro/task.hpp"

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
  void drain() {
    const turn_scope here(*this);
    for (;;) {
      while (work* w = ready_.pop()) w->run();
      const auto next = timers().next();
      if (!next) return;
      now_ = std::max(now_, *next);
      timers().expire(now_, 1);
    }
  }

 private:
  work_queue ready_;
  time_point now_{};
};

/// The outermost waiter of a test's task.
class root final : public continuation {
 public:
  explicit root(executor& home) noexcept
      : continuation(
            [](continuation& k) noexcept -> std::coroutine_handle<> {
              auto& self = static_cast<root&>(k);
              if (std::exchange(self.has_begun_, true) ||
                  self.task_->cancel_requested()) {
                self.has_ended_ = true;
                return std::noop_coroutine();
              }
              return self.task_->start(self);
            },
            &home) {}

  void begin(promise_base& task) noexcept {
    task_ = &task;
    resume();
  }
  /// As an owner would: true if it has ended now.
  bool cancel() noexcept {
    if (task_->cancel() && has_begun_) has_ended_ = true;
    return has_ended_;
  }
  [[nodiscard]] bool has_ended() const noexcept { return has_ended_; }

 private:
  promise_base* task_ = nullptr;
  bool has_begun_ = false;
  bool has_ended_ = false;
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

/// Counts the objects that are alive, and the order in which named ones end.
struct lifetimes {
  int made = 0;
  int ended = 0;
  std::string order;
  [[nodiscard]] int alive() const noexcept { return made - ended; }
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

}  // namespace manyworlds::testing
