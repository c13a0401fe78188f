// within: a deadline for any awaitable.
#pragma once

#include "manyworlds/coro/giving_up.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/branch.hpp"
#include "manyworlds/detail/call_refusal.hpp"

namespace manyworlds::inline v0 {

namespace detail {

/// Awaits a task until a deadline. See `within`.
template <class T>
class within_awaiter final : public native_only, private branch_owner, private timer {
 public:
  within_awaiter(task<T>&& operation, duration limit) noexcept
      : timer(expired), operation_(std::move(operation)), limit_(limit) {}

  bool await_ready() const noexcept { return false; }
  bool await_start(continuation& k) {
    waiter_ = &k;
    promise_base& started = operation_.promise();
    executor& home = k.home();
    home.arm(*this, later(home.now(), limit_));
    is_starting_ = true;
    branch_.start(started, *this, home);
    is_starting_ = false;
    return branch_.is_running();
  }
  bool await_cancel() noexcept {
    if (has_expired_ || !branch_.is_running()) return false;
    // While it starts, `await_start` reports the end.
    if (!branch_.cancel()) return false;
    disarm();
    return !is_starting_;
  }
  bool await_must_resume() const noexcept { return branch_.has_result() || has_expired_; }
  T await_resume() {
    // The frame goes first: when the waiter goes on, nothing of the operation is left.
    task<T> ended = std::move(operation_);
    if (!branch_.has_result()) {
      ended.reset();
      throw timed_out();
    }
    return ended.promise().take_result();
  }

 private:
  void disarm() noexcept { waiter_->home().timers().disarm(*this); }

  std::coroutine_handle<> branch_ended(branch&) noexcept override {
    disarm();
    if (is_starting_) return std::noop_coroutine();
    return waiter_->take();
  }

  static void expired(timer& t) noexcept {
    auto& self = static_cast<within_awaiter&>(t);
    MW_ASSERT(!self.has_expired_ && self.branch_.is_running(),
              "a deadline passes once, while its operation runs");
    self.has_expired_ = true;
    if (self.branch_.cancel()) self.waiter_->resume();
  }

  task<T> operation_;
  duration limit_;
  branch branch_;
  continuation* waiter_ = nullptr;
  bool is_starting_ = false;
  bool has_expired_ = false;
};

template <class T>
class MANYWORLDS_MUST_AWAIT within_awaitable : public not_for_asio {
 public:
  within_awaitable(task<T>&& operation, duration limit) noexcept
      : operation_(std::move(operation)), limit_(limit) {}
  within_awaiter<T> operator co_await() && noexcept {
    return within_awaiter<T>(std::move(operation_), limit_);
  }

 private:
  task<T> operation_;
  duration limit_;
};

}  // namespace detail

/// `co_await within(op, 2s)` gives what `op` gives, or gives up after that time by the
/// home's clock.
///
/// The operation is cancelled then, and waited for: nothing of it is left when
/// `timed_out` is thrown. If its value won the race, the value is given.
///
/// Errors: `timed_out` when it gave up; those of `op`; std::logic_error if the home keeps
/// no time.
template <class Awaitable>
auto within(Awaitable&& awaitable, duration limit) {
  using result = typename detail::task_for<Awaitable>::value_type;
  return detail::within_awaitable<result>(
      detail::as_task(std::forward<Awaitable>(awaitable)), limit);
}

template <detail::no_span T, class Awaitable>
void within(Awaitable&&, T) {
  detail::refuse_number<T>();
}

}  // namespace manyworlds::inline v0
