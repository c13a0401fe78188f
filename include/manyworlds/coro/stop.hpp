// stop_on: stop tokens for any awaitable.
#pragma once

#include <atomic>
#include <optional>
#include <stop_token>
#include <utility>

#include "manyworlds/coro/giving_up.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/branch.hpp"

namespace manyworlds::inline v0 {

namespace detail {

/// Awaits a task until a stop is requested. See `stop_on`.
///
/// The token fires on any thread, perhaps while the task ends. It only posts a notice to
/// the home. A waiter does not go on before a notice that was posted has arrived.
template <class T>
class stop_awaiter final : public native_only, private branch_owner, private work {
 public:
  stop_awaiter(task<T>&& operation, std::stop_token&& token) noexcept
      : work([](work& w) noexcept { static_cast<stop_awaiter&>(w).noticed(); },
             work_kind::tasks),
        operation_(std::move(operation)),
        token_(std::move(token)) {}

  bool await_ready() const noexcept { return false; }
  bool await_start(continuation& k) {
    waiter_ = &k;
    if (token_.stop_requested()) {
      was_stopped_ = true;
      return false;
    }
    promise_base& started = operation_.promise();
    is_starting_ = true;
    callback_.emplace(token_, poster{this});
    branch_.start(started, *this, k.home());
    is_starting_ = false;
    if (branch_.is_running()) return true;
    return awaits_notice();
  }
  bool await_cancel() noexcept {
    if (!branch_.is_running() || !branch_.cancel()) return false;
    return !awaits_notice() && !is_starting_;
  }
  bool await_must_resume() const noexcept { return branch_.has_result() || was_stopped_; }
  T await_resume() {
    task<T> ended = std::move(operation_);
    if (!branch_.has_result()) {
      ended.reset();
      throw stopped();
    }
    return ended.promise().take_result();
  }

 private:
  struct poster {
    stop_awaiter* self;
    void operator()() const noexcept {
      self->is_posted_.store(true, std::memory_order_relaxed);
      self->waiter_->home().execute(*self);
    }
  };

  /// Ends the callback. Returns true if its notice is still on the way.
  bool awaits_notice() noexcept {
    // The callback's destructor waits for a call on another thread, so the value read
    // next is final.
    callback_.reset();
    return is_posted_.load(std::memory_order_relaxed) && !is_noticed_;
  }

  void noticed() noexcept {
    MW_ASSERT(!is_noticed_ && is_posted_.load(std::memory_order_relaxed),
              "a notice is posted and arrives once");
    MW_ASSERT(waiter_->home().is_current(), "a notice runs from the home's queue");
    is_noticed_ = true;
    if (branch_.is_running()) {
      was_stopped_ = true;
      if (!branch_.cancel()) return;
      callback_.reset();
    }
    waiter_->take().resume();
  }

  std::coroutine_handle<> branch_ended(branch&) noexcept override {
    if (is_starting_ || awaits_notice()) return std::noop_coroutine();
    return waiter_->take();
  }

  task<T> operation_;
  std::stop_token token_;
  branch branch_;
  std::optional<std::stop_callback<poster>> callback_;
  continuation* waiter_ = nullptr;
  std::atomic<bool> is_posted_{false};
  bool is_noticed_ = false;
  bool is_starting_ = false;
  bool was_stopped_ = false;
};

template <class T>
class MANYWORLDS_MUST_AWAIT stop_awaitable : public not_for_asio {
 public:
  stop_awaitable(task<T>&& operation, std::stop_token&& token) noexcept
      : operation_(std::move(operation)), token_(std::move(token)) {}
  stop_awaiter<T> operator co_await() && noexcept {
    return stop_awaiter<T>(std::move(operation_), std::move(token_));
  }

 private:
  task<T> operation_;
  std::stop_token token_;
};

}  // namespace detail

/// `co_await stop_on(op, token)` gives what `op` gives, or gives up once a stop is
/// requested on any thread.
///
/// The operation is cancelled then, and waited for: nothing of it is left when `stopped`
/// is thrown. If its value won the race, the value is given. If the stop was requested
/// before, nothing is started.
///
/// Errors: `stopped` when it gave up; those of `op`.
template <class Awaitable>
auto stop_on(Awaitable&& awaitable, std::stop_token token) {
  using result = typename detail::task_for<Awaitable>::value_type;
  return detail::stop_awaitable<result>(
      detail::as_task(std::forward<Awaitable>(awaitable)), std::move(token));
}

}  // namespace manyworlds::inline v0
