// Resuming through foreign executors: coroutines of other libraries await our
// operations and resume where their library wants them to.
#pragma once

#include <chrono>
#include <coroutine>
#include <utility>

#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/branch.hpp"
#include "manyworlds/detail/foreign_continuation.hpp"

namespace manyworlds::inline v0 {

/// A foreign loop or thread pool as an executor. `Post` is called with a callable of no
/// arguments, on any thread, and must run it soon. It must not run two callables of one
/// coroutine at the same time (use a strand for a pool). It keeps no time. Operations of
/// worlds keep their deadlines by their own reactor.
///
///     mw::foreign_executor loop([&](auto f) { post_to_loop(std::move(f)); });
///     // In a coroutine of the library that has the loop:
///     co_await mw::resume_on(loop, w.recv(x, mw::from{1}));
///
/// Errors: `sleep_for` and `within` throw std::logic_error there.
template <class Post>
class foreign_executor final : public executor {
 public:
  explicit foreign_executor(Post post) : executor(false), post_(std::move(post)) {}

  void schedule(detail::work& w) noexcept override { post(w); }
  void post(detail::work& w) noexcept override {
    post_([this, &w] {
      const turn_scope here(*this);
      w.run();
    });
  }
  [[nodiscard]] time_point now() const noexcept override {
    return std::chrono::steady_clock::now();
  }

 private:
  Post post_;
};

namespace detail {

/// Awaits a task from a coroutine of any type. See `resume_on`.
template <class T>
class MANYWORLDS_MUST_AWAIT resume_on_awaiter {
 public:
  resume_on_awaiter(executor& where, task<T>&& operation) noexcept
      : where_(where), operation_(std::move(operation)) {}
  resume_on_awaiter(const resume_on_awaiter&) = delete;
  resume_on_awaiter& operator=(const resume_on_awaiter&) = delete;
  ~resume_on_awaiter() {
    if (waiter_.is_waiting() && !operation_.promise().cancel()) {
      foreign_continuation::cannot_withdraw();
    }
  }

  bool await_ready() const noexcept { return false; }
  // Not inlined: see `awaitable_by_all`.
  template <class Promise>
  [[gnu::noinline]] std::coroutine_handle<> await_suspend(
      std::coroutine_handle<Promise> waiter) noexcept {
    MW_ASSERT(!waiter_.is_waiting(), "an operation is awaited once");
    waiter_.wait(waiter, where_);
    return operation_.promise().start(waiter_);
  }
  T await_resume() {
    task<T> ended = std::move(operation_);
    if (ended.promise().outcome() == task_outcome::cancelled) {
      ended.reset();
      throw stopped();
    }
    return ended.promise().take_result();
  }

 private:
  executor& where_;
  task<T> operation_;
  foreign_continuation waiter_;
};

}  // namespace detail

/// `co_await resume_on(executor, op)`, in a coroutine of any library that awaits
/// standard awaitables: awaits a task or operation of ours, and resumes through that
/// executor. Precondition: the coroutine runs there when it awaits.
///
/// The wait is given up by the operation's stop tokens and deadlines. Destroying the
/// coroutine while it waits withdraws the operation. If it cannot be withdrawn at once,
/// the program ends with a message.
///
/// Errors: those of the operation; `stopped` if it ended as cancelled.
template <class Awaitable>
auto resume_on(executor& where, Awaitable&& awaitable) {
  using result = typename detail::task_for<Awaitable>::value_type;
  return detail::resume_on_awaiter<result>(
      where, detail::as_task(std::forward<Awaitable>(awaitable)));
}

}  // namespace manyworlds::inline v0
