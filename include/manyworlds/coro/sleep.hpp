// Sleeping and yielding: awaits that end by themselves.
#pragma once

#include "manyworlds/coro/awaitable.hpp"

namespace manyworlds::inline v0 {

/// Ends when the home's time has come. Cancelled at once. Needs a home that keeps time (a
/// reactor, `local_executor`), not a foreign executor.
class sleep_awaiter : private timer {
 public:
  explicit sleep_awaiter(time_point until) noexcept : timer(expired), until_(until) {}
  explicit sleep_awaiter(duration span) noexcept
      : timer(expired), span_(span), is_relative_(true) {}

  bool await_ready() const noexcept { return false; }
  void await_start(continuation& k) {
    waiter_ = &k;
    executor& home = k.home();
    home.timers().arm(*this, is_relative_ ? later(home.now(), span_) : until_);
  }
  bool await_cancel() noexcept {
    // Expired already: the waiter is in its home's queue.
    if (!is_armed()) return false;
    waiter_->home().timers().disarm(*this);
    return true;
  }
  bool await_must_resume() const noexcept { return true; }
  void await_resume() const noexcept {}

 private:
  static void expired(timer& t) noexcept {
    static_cast<sleep_awaiter&>(t).waiter_->resume();
  }

  time_point until_{};
  duration span_{};
  bool is_relative_ = false;
  continuation* waiter_ = nullptr;
};

/// Goes on at the back of the home's queue, after what was ready before.
class yield_awaiter {
 public:
  yield_awaiter() noexcept = default;

  bool await_ready() const noexcept { return false; }
  void await_start(continuation& k) const noexcept { k.resume(); }
  bool await_cancel() const noexcept { return false; }
  bool await_must_resume() const noexcept { return true; }
  void await_resume() const noexcept {}
};

/// `co_await sleep_for(50ms)`: goes on that much later by the home's time; never in the
/// same turn.
[[nodiscard]] inline sleep_awaiter sleep_for(duration span) noexcept {
  return sleep_awaiter(span);
}

/// `co_await sleep_until(t)`; a time that has passed means the next turn.
[[nodiscard]] inline sleep_awaiter sleep_until(time_point until) noexcept {
  return sleep_awaiter(until);
}

/// `co_await yield()`: lets other tasks of the home run first.
[[nodiscard]] inline yield_awaiter yield() noexcept { return {}; }

}  // namespace manyworlds::inline v0
