// Event: tasks of one home wait until something has happened.
#pragma once

#include <stdexcept>

#include "manyworlds/coro/awaitable.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/native_only.hpp"

namespace manyworlds::inline v0 {

namespace detail {
class event_awaiter;
}  // namespace detail

/// A flag that is not set at first. `set` lets all waiters go on, in the order they came,
/// and stays set until `reset`. Thread: its tasks share one; across threads use a
/// `channel`. Lifetime: destroy it only when no task waits.
///
///     mw::event loaded;
///     s.spawn([&]() -> mw::task<void> {
///       co_await load();
///       loaded.set();
///     });
///     co_await loaded.wait();
///
/// Errors: a wait throws std::invalid_argument if the event was destroyed meanwhile.
class event {
 public:
  event() = default;
  event(const event&) = delete;
  event& operator=(const event&) = delete;
  ~event();

  [[nodiscard]] bool is_set() const noexcept { return is_set_; }
  /// Sets the flag, and lets all waiters go on.
  void set() noexcept;
  /// Clears the flag. Waiters that an earlier `set` let go still go on.
  void reset() noexcept { is_set_ = false; }

  /// Waits until the event is set; ends at once if it is.
  detail::event_awaiter wait() noexcept;
  detail::event_awaiter operator co_await() noexcept;

 private:
  friend class detail::event_awaiter;
  void let_go() noexcept;

  detail::event_awaiter* first_ = nullptr;
  detail::event_awaiter* last_ = nullptr;
  bool is_set_ = false;
};

namespace detail {

class MANYWORLDS_MUST_AWAIT event_awaiter : public native_only, public not_for_asio {
 public:
  explicit event_awaiter(event& e) noexcept : event_(&e) {}

  bool await_ready() const noexcept { return event_->is_set_; }
  void await_start(continuation& k) noexcept {
    waiter_ = &k;
    before_ = event_->last_;
    // It may have waited before, in front of others.
    after_ = nullptr;
    (before_ ? before_->after_ : event_->first_) = this;
    event_->last_ = this;
  }
  bool await_cancel() noexcept {
    if (!waiter_) return false;
    MW_ASSERT((before_ ? before_->after_ : event_->first_) == this &&
                  (after_ ? after_->before_ : event_->last_) == this,
              "a waiter is removed from the list that it waits in");
    (before_ ? before_->after_ : event_->first_) = after_;
    (after_ ? after_->before_ : event_->last_) = before_;
    return true;
  }
  bool await_must_resume() const noexcept { return true; }
  void await_resume() const {
    if (event_) return;
    throw std::invalid_argument(
        "the event was destroyed while a task waited for it: set() it, and let its "
        "waiters end first");
  }

 private:
  friend event;
  event* event_;
  event_awaiter* before_ = nullptr;
  event_awaiter* after_ = nullptr;
  // It is null once the event has let the task go on.
  continuation* waiter_ = nullptr;
};

}  // namespace detail

// --------------------------------------------------------------------------------------

inline void event::set() noexcept {
  is_set_ = true;
  let_go();
}

inline event::~event() {
  for (detail::event_awaiter* a = first_; a; a = a->after_) a->event_ = nullptr;
  let_go();
}

inline void event::let_go() noexcept {
  detail::event_awaiter* next = first_;
  first_ = last_ = nullptr;
  while (next) {
    detail::event_awaiter& a = *next;
    next = a.after_;
    continuation* k = a.waiter_;
    MW_ASSERT(k, "each waiter in the list still waits");
    a.waiter_ = nullptr;
    k->resume();
  }
}

inline detail::event_awaiter event::wait() noexcept {
  return detail::event_awaiter(*this);
}

inline detail::event_awaiter event::operator co_await() noexcept {
  return detail::event_awaiter(*this);
}

}  // namespace manyworlds::inline v0
