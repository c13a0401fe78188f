// shield: runs an operation to its end although its waiter is cancelled.
#pragma once

#include <utility>

#include "manyworlds/detail/branch.hpp"

namespace manyworlds::inline v0 {

namespace detail {

template <class T>
class shield_awaiter : public native_only {
 public:
  explicit shield_awaiter(task<T>&& operation) noexcept
      : operation_(std::move(operation)) {}

  bool await_ready() const noexcept { return false; }
  // A waiter that is cancelled already runs it all the same: cleaning up comes here.
  bool await_early_cancel() const noexcept { return false; }
  auto await_start(continuation& k) { return operation_.promise().start(k); }
  bool await_cancel() const noexcept { return false; }
  bool await_must_resume() const noexcept {
    return operation_.promise().outcome() != task_outcome::cancelled;
  }
  T await_resume() {
    task<T> ended = std::move(operation_);
    return ended.promise().take_result();
  }

 private:
  task<T> operation_;
};

template <class T>
class MANYWORLDS_MUST_AWAIT shield_awaitable : public not_for_asio {
 public:
  explicit shield_awaitable(task<T>&& operation) noexcept
      : operation_(std::move(operation)) {}
  shield_awaiter<T> operator co_await() && noexcept {
    return shield_awaiter<T>(std::move(operation_));
  }

 private:
  task<T> operation_;
};

}  // namespace detail

/// `co_await shield(op)` runs `op` to its end, also in a task that is cancelled (before
/// or meanwhile). The cancellation is taken at the task's next `co_await`. Use it for
/// what must not be cut: returning a lease, telling a peer. The task's waiter waits for
/// `op` too. Errors: those of `op`.
template <class Awaitable>
auto shield(Awaitable&& awaitable) {
  using result = typename detail::task_for<Awaitable>::value_type;
  return detail::shield_awaitable<result>(
      detail::as_task(std::forward<Awaitable>(awaitable)));
}

}  // namespace manyworlds::inline v0
