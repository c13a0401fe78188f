// Task root: the outermost waiter of a task.
#pragma once

#include <coroutine>
#include <utility>

#include "manyworlds/coro/promise.hpp"

namespace manyworlds::inline v0 {

/// Starts a task on an executor and is told when it has ended. For what bridges tasks to
/// the world outside: `sync_wait`, a runtime's `start`, another library's futures.
///
/// Neither this nor the task may be destroyed before the end, nor from within the notice:
/// it comes from within the task's last suspension.
class task_root final : public continuation {
 public:
  using function = void (*)(void* context) noexcept;

  task_root(executor& home, function ended, void* context) noexcept
      : continuation(
            [](continuation& k) noexcept { return static_cast<task_root&>(k).next(); },
            &home),
        ended_(ended),
        context_(context) {}

  /// Queues the task on its home. From any thread, once.
  void start(promise_base& task) noexcept {
    task_ = &task;
    resume();
  }

  /// Asks the task to stop; home thread only, after `start`. True: it has ended as
  /// cancelled now and there will be no notice.
  bool cancel() noexcept {
    // Before it begins it is in the home's queue and cannot be taken out of it.
    return task_->cancel() && has_begun_;
  }

 private:
  std::coroutine_handle<> next() noexcept {
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

}  // namespace manyworlds::inline v0
