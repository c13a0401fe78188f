// Local executor: a home on the calling thread, without I/O.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <utility>

#include "manyworlds/coro/giving_up.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/detail/root.hpp"

namespace manyworlds::inline v0::detail {

/// Runs tasks on the thread that calls `run`, and sleeps when there is nothing to do. It
/// serves programs and tests without a runtime; a reactor does the same with I/O.
class local_executor final : public executor {
 public:
  void schedule(work& w) noexcept override { ready_.push(w); }
  void post(work& w) noexcept override {
    const std::lock_guard lock(mutex_);
    posted_.push(w);
    // Under the lock: `run` may return and the executor be destroyed right after it.
    wake_.notify_one();
  }
  [[nodiscard]] time_point now() const noexcept override {
    return std::chrono::steady_clock::now();
  }

  /// Runs a task, and all other work that comes, until that task has ended. Returns its
  /// value or throws what it threw. Throws `stopped` if the task was cancelled.
  template <class T>
  T run(task<T> t) {
    bool has_ended = false;
    task_root root(
        *this, [](void* ended) noexcept { *static_cast<bool*>(ended) = true; },
        &has_ended);
    const turn_scope here(*this);
    root.start(t.promise());
    while (!has_ended) turn();
    if (t.promise().outcome() == task_outcome::cancelled) {
      t.reset();
      throw stopped();
    }
    return t.promise().take_result();
  }

 private:
  static constexpr std::size_t timers_per_turn = 64;

  void turn() noexcept {
    take_posted();
    work_queue batch;
    batch.append(ready_);
    while (work* w = batch.pop()) w->run();
    timers().expire(now(), timers_per_turn);
  }

  /// Sleeps if there is nothing to do.
  void take_posted() noexcept {
    std::unique_lock lock(mutex_);
    const auto is_posted = [this] { return !posted_.empty(); };
    if (ready_.empty()) {
      if (const auto next = timers().next()) {
        wake_.wait_until(lock, *next, is_posted);
      } else {
        wake_.wait(lock, is_posted);
      }
    }
    ready_.append(posted_);
  }

  work_queue ready_;
  std::mutex mutex_;
  std::condition_variable wake_;
  work_queue posted_;
};

}  // namespace manyworlds::inline v0::detail
