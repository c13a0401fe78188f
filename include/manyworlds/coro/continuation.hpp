// Continuation: what an operation resumes when it has ended.
#pragma once

#include <coroutine>

#include "manyworlds/coro/executor.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0 {

/// The waiter of one operation: a task's promise, a child slot of a scope, or a foreign
/// coroutine. An operation keeps the reference it was started with and resumes it exactly
/// once when it ends.
class continuation : public detail::work {
 public:
  /// Returns the executor on which the waiter runs.
  [[nodiscard]] executor& home() const noexcept {
    MW_ASSERT(home_, "a waiter has a home before its operation starts");
    return *home_;
  }

  /// Resumes the waiter through its home's queue. Thread: any. Lifetime: the waiter may
  /// destroy the operation as soon as this was called.
  void resume() noexcept { home().execute(*this); }

  /// Returns the handle to continue with by symmetric transfer: the waiter's own, or that
  /// of the waiter's waiter if the waiter is cancelled now. Thread: the home's only.
  [[nodiscard]] std::coroutine_handle<> take() noexcept { return take_(*this); }

 protected:
  /// Returns the handle to continue with; see `take`.
  using take_function = std::coroutine_handle<> (*)(continuation&) noexcept;

  explicit continuation(take_function f, executor* home = nullptr) noexcept
      : continuation(
            [](detail::work& w) noexcept {
              static_cast<continuation&>(w).take().resume();
            },
            f, home) {}
  /// Takes also what an executor runs: `take`, then resuming what that gives. A waiter
  /// that knows itself needs no call for the first.
  continuation(function runs, take_function f, executor* home) noexcept
      : detail::work(runs, detail::work_kind::tasks), take_(f), home_(home) {}
  ~continuation() = default;

  /// Sets the executor that `resume` uses.
  void set_home(executor& home) noexcept { home_ = &home; }

 private:
  take_function take_;
  executor* home_;
};

}  // namespace manyworlds::inline v0
