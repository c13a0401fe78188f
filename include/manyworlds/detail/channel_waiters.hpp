// The queues of a channel's waiters. All calls need the channel's lock, where it is not
// said otherwise.
#pragma once

#include <stdexcept>
#include <string>

#include "manyworlds/coro/awaitable.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

[[noreturn]] inline void refuse_destroyed_channel(const char* in) {
  throw std::invalid_argument(std::string("the channel was destroyed while a task waited "
                                          "in ") +
                              in + "(): close() it, and let its waiters end first");
}

/// One push or pop that waits: part of its awaiter.
class channel_waiter {
 public:
  channel_waiter() noexcept = default;
  channel_waiter(const channel_waiter&) = delete;
  channel_waiter& operator=(const channel_waiter&) = delete;

  [[nodiscard]] continuation* waiter() const noexcept { return waiter_; }
  /// Returns true if its channel was destroyed while it waited, and may not be touched.
  [[nodiscard]] bool is_orphan() const noexcept { return is_orphan_; }

 protected:
  ~channel_waiter() = default;

 private:
  friend class channel_waiters;
  channel_waiter* before_ = nullptr;
  channel_waiter* after_ = nullptr;
  continuation* waiter_ = nullptr;
  bool is_waiting_ = false;
  bool is_orphan_ = false;
};

/// Waiters in the order they came.
class channel_waiters {
 public:
  void add(channel_waiter& w, continuation& k) noexcept {
    MW_ASSERT(!w.is_waiting_, "a waiter waits in one list at a time");
    w.waiter_ = &k;
    w.is_waiting_ = true;
    w.before_ = last_;
    w.after_ = nullptr;
    (last_ ? last_->after_ : first_) = &w;
    last_ = &w;
  }

  /// Removes a waiter. Returns false if it was taken before: its continuation is or will
  /// be resumed.
  bool remove(channel_waiter& w) noexcept {
    if (!w.is_waiting_) return false;
    MW_ASSERT((w.before_ ? w.before_->after_ : first_) == &w &&
                  (w.after_ ? w.after_->before_ : last_) == &w,
              "a waiter is removed from the list that it waits in");
    w.is_waiting_ = false;
    (w.before_ ? w.before_->after_ : first_) = w.after_;
    (w.after_ ? w.after_->before_ : last_) = w.before_;
    return true;
  }

  /// Takes the one that waits longest, or returns null. The caller must resume it.
  channel_waiter* take_first() noexcept {
    channel_waiter* w = first_;
    if (w) remove(*w);
    return w;
  }

  /// Takes all that wait in `other`; `resume_all` resumes them.
  void take_all(channel_waiters& other) noexcept {
    while (channel_waiter* w = other.take_first()) add_taken(*w);
  }
  /// Does the same for one that was taken.
  void add_taken(channel_waiter& w) noexcept {
    MW_ASSERT(!w.is_waiting_ && w.waiter_, "only a waiter that was taken is collected");
    w.after_ = nullptr;
    (last_ ? last_->after_ : first_) = &w;
    last_ = &w;
  }

  /// Resumes those that were taken, as waiters of a channel that is being destroyed.
  /// Needs no lock.
  void orphan_all() noexcept {
    for (channel_waiter* w = first_; w; w = w->after_) w->is_orphan_ = true;
    resume_all();
  }

  /// Resumes those that were taken. Needs no lock: nothing else reaches them.
  void resume_all() noexcept {
    while (first_) {
      // The waiter may be gone as soon as it is resumed.
      channel_waiter* w = first_;
      MW_ASSERT(!w->is_waiting_, "only a waiter that was taken is resumed");
      first_ = w->after_;
      w->waiter_->resume();
    }
    last_ = nullptr;
  }

 private:
  channel_waiter* first_ = nullptr;
  channel_waiter* last_ = nullptr;
};

}  // namespace manyworlds::inline v0::detail
