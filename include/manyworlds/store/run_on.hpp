// Running a task on another executor: post there, and back.
#pragma once

#include <atomic>
#include <exception>
#include <utility>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/member_work.hpp"
#include "manyworlds/detail/value_slot.hpp"

namespace manyworlds::inline v0 {

namespace detail {

/// Awaits a task that has another home than its waiter. See `run_on`.
template <class T>
class run_on_awaiter {
 public:
  run_on_awaiter(executor& where, task<T>&& operation) noexcept
      : operation_(std::move(operation)), where_(where), end_(*this), errand_(*this) {}
  run_on_awaiter(const run_on_awaiter&) = delete;
  run_on_awaiter& operator=(const run_on_awaiter&) = delete;
  ~run_on_awaiter() = default;

  bool await_ready() const noexcept { return false; }
  void await_start(continuation& k) noexcept {
    MW_ASSERT(!waiter_, "a task is started once");
    waiter_ = &k;
    where_.execute(end_);
  }
  bool await_cancel() noexcept {
    // If the end came first, the waiter is being resumed. Otherwise the errand resumes
    // it, or the end that the errand brings about: the last access to this object.
    phase seen = phase::running;
    if (phase_.compare_exchange_strong(seen, phase::cancelling,
                                       std::memory_order_acq_rel)) {
      where_.execute(errand_);
    }
    return false;
  }
  bool await_must_resume() const noexcept { return !was_cancelled_; }
  T await_resume() {
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    return value_.take();
  }

 private:
  enum class phase : unsigned char { running, cancelling, ended };

  /// Is queued three times in turn: to start the task, as the continuation of the
  /// task's end, and to clean up.
  class far_end final : public continuation {
   public:
    explicit far_end(run_on_awaiter& owner) noexcept
        : continuation(
              [](continuation& k) noexcept { return static_cast<far_end&>(k).next(); },
              &owner.where_),
          owner_(owner) {}

   private:
    std::coroutine_handle<> next() noexcept {
      MW_ASSERT(step_ <= 2, "the far side starts, ends and cleans up once each");
      switch (step_++) {
        case 0:
          return owner_.start();
        case 1:
          // The task's frame must not be destroyed from within its own last suspension.
          home().schedule(*this);
          return std::noop_coroutine();
        default:
          owner_.ended();
          return std::noop_coroutine();
      }
    }

    run_on_awaiter& owner_;
    int step_ = 0;
  };

  // All members below run on the far side.

  std::coroutine_handle<> start() noexcept { return operation_.promise().start(end_); }

  void cancel() noexcept {
    MW_ASSERT(!errand_is_done_, "a cancellation is posted once");
    errand_is_done_ = true;
    if (has_ended_) return resume_waiter();
    // The start was queued before the errand, so the task has started.
    if (operation_.promise().cancel()) {
      take_result();
      resume_waiter();
    }
  }

  void ended() noexcept {
    take_result();
    phase seen = phase::running;
    if (phase_.compare_exchange_strong(seen, phase::ended, std::memory_order_acq_rel) ||
        errand_is_done_) {
      resume_waiter();
    }
  }

  /// Destroys the frame here, on the thread where its locals belong.
  void take_result() noexcept {
    MW_ASSERT(!has_ended_, "a result is taken once");
    has_ended_ = true;
    auto& promise = operation_.promise();
    was_cancelled_ = promise.outcome() == task_outcome::cancelled;
    error_ = promise.error();
    if (promise.outcome() == task_outcome::returned) {
      try {
        if constexpr (std::is_void_v<T>) {
          value_.emplace();
        } else {
          value_.emplace(promise.take_result());
        }
      } catch (...) {
        error_ = std::current_exception();
      }
    }
    operation_.reset();
  }

  void resume_waiter() noexcept {
    MW_ASSERT(waiter_ && has_ended_, "the waiter resumes after the frame has ended");
    waiter_->resume();
  }

  task<T> operation_;
  executor& where_;
  far_end end_;
  member_work<&run_on_awaiter::cancel> errand_;
  continuation* waiter_ = nullptr;
  value_slot<T> value_;
  std::exception_ptr error_;
  std::atomic<phase> phase_{phase::running};
  bool has_ended_ = false;
  bool errand_is_done_ = false;
  bool was_cancelled_ = false;
};

template <class T>
class MANYWORLDS_MUST_AWAIT run_on_awaitable {
 public:
  run_on_awaitable(executor& where, task<T>&& operation) noexcept
      : where_(where), operation_(std::move(operation)) {}
  run_on_awaiter<T> operator co_await() && noexcept {
    return run_on_awaiter<T>(where_, std::move(operation_));
  }

 private:
  executor& where_;
  task<T> operation_;
};

}  // namespace detail

/// Runs a task with `where` as its home: `co_await run_on(where, op())`. The task stays
/// there from its start to the end of its frame; the waiter goes on at its own home.
/// Cancelling waits until the far side has ended the task. Precondition: `where` turns
/// until then, and outlives the await. Errors: what the task threw.
template <class T>
detail::run_on_awaitable<T> run_on(executor& where, task<T> operation) noexcept {
  return detail::run_on_awaitable<T>(where, std::move(operation));
}

}  // namespace manyworlds::inline v0
