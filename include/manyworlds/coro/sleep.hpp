// Sleeping and yielding: awaits that end by themselves.
#pragma once

#include "manyworlds/coro/awaitable.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/call_refusal.hpp"
#include "manyworlds/detail/native_only.hpp"

namespace manyworlds::inline v0 {

namespace detail {

/// A sleep that has not begun.
class MANYWORLDS_MUST_AWAIT sleep_awaitable : public not_for_asio {
 public:
  explicit sleep_awaitable(time_point until) noexcept : until_(until) {}
  explicit sleep_awaitable(duration span) noexcept : span_(span), is_relative_(true) {}

  [[nodiscard]] time_point end(time_point now) const noexcept {
    return is_relative_ ? later(now, span_) : until_;
  }
  class sleep_awaiter operator co_await() const noexcept;

 private:
  time_point until_{};
  duration span_{};
  bool is_relative_ = false;
};

class sleep_awaiter : public native_only, private timer {
 public:
  explicit sleep_awaiter(const sleep_awaitable& what) noexcept
      : timer(expired), what_(what) {}

  bool await_ready() const noexcept { return false; }
  void await_start(continuation& k) {
    waiter_ = &k;
    executor& home = k.home();
    home.arm(*this, what_.end(home.now()));
  }
  bool await_cancel() noexcept {
    // It has expired already: the waiter is in its home's queue.
    if (!is_armed()) return false;
    waiter_->home().timers().disarm(*this);
    return true;
  }
  bool await_must_resume() const noexcept { return true; }
  void await_resume() const noexcept {}

 private:
  static void expired(timer& t) noexcept {
    MW_ASSERT(!t.is_armed(), "a timer is disarmed before it expires");
    static_cast<sleep_awaiter&>(t).waiter_->resume();
  }

  sleep_awaitable what_;
  continuation* waiter_ = nullptr;
};

inline sleep_awaiter sleep_awaitable::operator co_await() const noexcept {
  return sleep_awaiter(*this);
}

/// Continues at the back of the home's queue, after what was ready before.
class MANYWORLDS_MUST_AWAIT yield_awaiter : public native_only, public not_for_asio {
 public:
  yield_awaiter() noexcept = default;

  bool await_ready() const noexcept { return false; }
  void await_start(continuation& k) const noexcept { k.resume(); }
  bool await_cancel() const noexcept { return false; }
  bool await_must_resume() const noexcept { return true; }
  void await_resume() const noexcept {}
};

}  // namespace detail

/// `co_await sleep_for(50ms)` goes on that much later by the home's time, and never in
/// the same turn. A cancellation ends it at once. Errors: std::logic_error if the home
/// keeps no time.
inline detail::sleep_awaitable sleep_for(duration span) noexcept {
  return detail::sleep_awaitable(span);
}

template <detail::no_span T>
void sleep_for(T) {
  detail::refuse_number<T>();
}

/// `co_await sleep_until(t)` goes on at that time; a time that has passed means the next
/// turn. Errors: those of `sleep_for`.
inline detail::sleep_awaitable sleep_until(time_point until) noexcept {
  return detail::sleep_awaitable(until);
}

/// `co_await yield()` lets other tasks of the home run first. Errors: none.
inline detail::yield_awaiter yield() noexcept { return {}; }

}  // namespace manyworlds::inline v0
