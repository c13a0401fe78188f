// Continuation: whom to resume when an operation has ended.
#pragma once

#include <coroutine>

#include "manyworlds/coro/executor.hpp"

namespace manyworlds::inline v0 {

/// The waiter of one operation: a task's promise, a child slot of a scope, or a foreign
/// coroutine. An operation keeps the reference it was started with and resumes it exactly
/// once when it ends.
class continuation : public work {
 public:
  /// Where the waiter runs.
  [[nodiscard]] executor& home() const noexcept { return *home_; }

  /// Resumes the waiter through its home's queue. From any thread; the operation may be
  /// destroyed by the waiter as soon as this was called.
  void resume() noexcept { home_->execute(*this); }

  /// The handle to continue with by symmetric transfer: the waiter's own, or that of
  /// whoever waits for the waiter if it is cancelled now. On the home's thread only.
  [[nodiscard]] std::coroutine_handle<> take() noexcept { return take_(*this); }

 protected:
  using take_function = std::coroutine_handle<> (*)(continuation&) noexcept;

  explicit continuation(take_function f, executor* home = nullptr) noexcept
      : work([](work& w) noexcept { static_cast<continuation&>(w).take().resume(); },
             work_kind::tasks),
        take_(f),
        home_(home) {}
  ~continuation() = default;

  void set_home(executor& home) noexcept { home_ = &home; }

 private:
  take_function take_;
  executor* home_;
};

}  // namespace manyworlds::inline v0
