// Notice: a one-shot event that tasks of any runtime may wait for.
#pragma once

#include <atomic>
#include <mutex>

#include "manyworlds/coro/continuation.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

class notice_awaiter;

/// Set once, from any thread. It resumes all waiting tasks, each at its own home.
class notice {
 public:
  notice() = default;
  notice(const notice&) = delete;
  notice& operator=(const notice&) = delete;

  [[nodiscard]] bool is_set() const noexcept {
    return set_.load(std::memory_order_acquire);
  }
  void set() noexcept;
  [[nodiscard]] notice_awaiter wait() noexcept;

 private:
  friend class notice_awaiter;
  std::mutex mutex_;
  std::atomic<bool> set_{false};
  notice_awaiter* first_ = nullptr;
};

/// Waits for a notice. Lifetime: the notice must outlive the wait.
class notice_awaiter {
 public:
  explicit notice_awaiter(notice& on) noexcept : notice_(&on) {}
  notice_awaiter(const notice_awaiter&) = delete;
  notice_awaiter& operator=(const notice_awaiter&) = delete;
  ~notice_awaiter() = default;

  bool await_ready() const noexcept { return notice_->is_set(); }

  bool await_start(continuation& k) noexcept {
    const std::lock_guard lock(notice_->mutex_);
    if (notice_->is_set()) return false;
    MW_ASSERT(!next_ && !previous_ && notice_->first_ != this,
              "a waiter that begins to wait is on no list");
    waiter_ = &k;
    next_ = notice_->first_;
    if (next_) next_->previous_ = this;
    notice_->first_ = this;
    return true;
  }

  bool await_cancel() noexcept {
    const std::lock_guard lock(notice_->mutex_);
    // Set already: the waiter is being resumed.
    if (notice_->is_set()) return false;
    MW_ASSERT(previous_ ? previous_->next_ == this : notice_->first_ == this,
              "a waiter that is cancelled is on the list of its notice");
    (previous_ ? previous_->next_ : notice_->first_) = next_;
    if (next_) next_->previous_ = previous_;
    return true;
  }
  bool await_must_resume() const noexcept { return true; }
  void await_resume() const noexcept {}

 private:
  friend class notice;
  notice* notice_;
  continuation* waiter_ = nullptr;
  notice_awaiter* next_ = nullptr;
  notice_awaiter* previous_ = nullptr;
};

// ------------------------------------------------------------------------------------------------

inline notice_awaiter notice::wait() noexcept { return notice_awaiter(*this); }

inline void notice::set() noexcept {
  notice_awaiter* waiting = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (set_.exchange(true, std::memory_order_release)) return;
    waiting = first_;
    first_ = nullptr;
  }
  while (waiting) {
    // Read before resuming: the awaiter may be gone then.
    notice_awaiter* next = waiting->next_;
    MW_ASSERT(waiting->waiter_, "what is on the list of a notice waits");
    waiting->waiter_->resume();
    waiting = next;
  }
}

}  // namespace manyworlds::inline v0::detail
