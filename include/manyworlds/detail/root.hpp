// Task root: the outermost waiter of a task.
#pragma once

#include <coroutine>
#include <utility>

#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/promise.hpp"

namespace manyworlds::inline v0::detail {

/// Starts a task on an executor and is told when it has ended. It bridges tasks to the
/// code outside: `sync_wait`, a runtime's `start`, another library's futures.
///
/// Lifetime: neither this nor the task may be destroyed before the end, nor from within
/// the notice, which comes from within the task's last suspension.
class task_root final : public continuation {
 public:
  using function = void (*)(void* context) noexcept;

  task_root(executor& home, function ended, void* context) noexcept
      : continuation(
            [](continuation& k) noexcept { return static_cast<task_root&>(k).next(); },
            &home),
        ended_(ended),
        context_(context) {}

  /// Queues the task on its home, once. Thread: any.
  void start(promise_base& task) noexcept {
    MW_ASSERT(!task_, "a root starts one task, once");
    task_ = &task;
    resume();
  }

  /// Asks the task to stop. True: it has ended as cancelled now and there will be no
  /// notice. Thread: the home's only. Precondition: `start` was called.
  bool cancel() noexcept {
    MW_ASSERT(task_, "a root is cancelled after its start");
    // Before it begins it is in the home's queue and cannot be taken out of it.
    return task_->cancel() && has_begun_;
  }

 private:
  std::coroutine_handle<> next() noexcept {
    MW_ASSERT(task_, "a root is queued by its start");
    if (!std::exchange(has_begun_, true) && !task_->cancel_requested()) {
      return task_->start(*this);
    }
    ended_(context_);
    return std::noop_coroutine();
  }

  promise_base* task_ = nullptr;
  function ended_;
  void* context_;
  bool has_begun_ = false;
};

}  // namespace manyworlds::inline v0::detail
