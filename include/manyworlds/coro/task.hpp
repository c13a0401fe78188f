// task<T>: the library's coroutine type.
#pragma once

#include <concepts>
#include <coroutine>
#include <stdexcept>
#include <utility>

#include "manyworlds/detail/native_only.hpp"
#include "manyworlds/detail/promise.hpp"
#include "manyworlds/detail/value_slot.hpp"

namespace manyworlds::inline v0 {

namespace detail {

template <class T>
class task_awaiter;

[[noreturn]] inline void refuse_empty_task() {
  throw std::invalid_argument(
      "this task is empty: it was awaited or started before, moved from, or never had a "
      "coroutine. A task runs once; call its function again for another one");
}

}  // namespace detail

/// A coroutine that gives a T when awaited.
///
///     mw::task<float> average(mw::world& w, std::vector<float>& x) {
///       co_await w.all_reduce(x, mw::avg);
///       co_return x.front();
///     }
///     mw::task<void> show(mw::world& w, std::vector<float>& x) {
///       std::printf("%f\n", co_await average(w, x));  // starts it, and waits
///     }
///
/// It is lazy: nothing runs before it is awaited or handed to a scope. It is move-only
/// and one pointer wide. It runs on the executor of its waiter (its home) and always
/// resumes there, no matter what it awaits.
///
/// A task that is cancelled is not resumed: its frame is destroyed with this object, and
/// its locals unwind in order. Awaiting a task gives its value.
///
/// Errors: an await throws what the task threw; std::invalid_argument if the task is
/// empty, as it is once it was awaited.
template <class T = void>
class MANYWORLDS_MUST_AWAIT task : public detail::not_for_asio {
 public:
  /// What the compiler asks of a coroutine.
  using promise_type = detail::task_promise<T>;
  using value_type = T;

  task() noexcept = default;
  task(task&& other) noexcept : frame_(std::exchange(other.frame_, {})) {}
  task& operator=(task&& other) noexcept {
    if (this != &other) {
      reset();
      frame_ = std::exchange(other.frame_, {});
    }
    return *this;
  }
  // Compilers print the line, and the reason with it.
  task(const task&) = delete;  // a task runs once: std::move it
  task& operator=(const task&) = delete;
  ~task() { reset(); }

  /// Returns true if there is a coroutine; false after a move.
  explicit operator bool() const noexcept { return static_cast<bool>(frame_); }

  /// Returns the awaiter. Only an rvalue can be awaited, once.
  detail::task_awaiter<T> operator co_await() && noexcept {
    return detail::task_awaiter<T>(std::move(*this));
  }

  /// Returns the promise, for combiners and scopes. Errors: std::invalid_argument if the
  /// task is empty.
  [[nodiscard]] detail::task_promise<T>& promise() const {
    if (!frame_) [[unlikely]]
      detail::refuse_empty_task();
    return frame_.promise();
  }

  /// Destroys the frame. Precondition: the task has not started, or has ended (also as
  /// cancelled).
  void reset() noexcept {
    if (auto frame = std::exchange(frame_, {})) frame.destroy();
  }

 private:
  friend detail::task_promise<T>;
  explicit task(std::coroutine_handle<detail::task_promise<T>> frame) noexcept
      : frame_(frame) {}

  std::coroutine_handle<detail::task_promise<T>> frame_;
};

namespace detail {

/// A task's promise with the place of its result.
template <class T>
class task_promise final : public promise_base {
 public:
  task_promise() noexcept
      : promise_base(std::coroutine_handle<task_promise>::from_promise(*this)) {}

  task<T> get_return_object() noexcept {
    return task<T>(std::coroutine_handle<task_promise>::from_promise(*this));
  }

  template <class U = T>
  requires std::convertible_to<U, T>
  void return_value(U&& value) {
    value_.emplace(std::forward<U>(value));
    set_returned();
  }

  /// Moves the value out, or throws the task's error. Called once.
  T take_result() {
    rethrow_error();
    return value_.take();
  }

 private:
  value_slot<T> value_;
};

template <>
class task_promise<void> final : public promise_base {
 public:
  task_promise() noexcept
      : promise_base(std::coroutine_handle<task_promise>::from_promise(*this)) {}

  task<void> get_return_object() noexcept {
    return task<void>(std::coroutine_handle<task_promise>::from_promise(*this));
  }

  void return_void() noexcept { set_returned(); }
  void take_result() { rethrow_error(); }
};

/// Runs a task as the child of the awaiting one.
template <class T>
class task_awaiter : public native_only {
 public:
  explicit task_awaiter(task<T>&& child) noexcept : child_(std::move(child)) {}
  task_awaiter(const task_awaiter&) = delete;
  task_awaiter& operator=(const task_awaiter&) = delete;
  ~task_awaiter() = default;

  bool await_ready() const noexcept { return false; }
  std::coroutine_handle<> await_start(continuation& k) {
    return child_.promise().start(k);
  }
  bool await_cancel() noexcept { return child_.promise().cancel(); }
  bool await_must_resume() const noexcept {
    return child_.promise().outcome() != task_outcome::cancelled;
  }
  T await_resume() {
    // The frame goes before the value is used: its locals end as at a function's return.
    task<T> ended = std::move(child_);
    return ended.promise().take_result();
  }

 private:
  task<T> child_;
};

}  // namespace detail

}  // namespace manyworlds::inline v0
