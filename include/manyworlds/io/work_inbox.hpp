// Work inbox: how other threads hand work to a reactor without locks, waking it only if
// it sleeps.
#pragma once

#include <atomic>

#include "manyworlds/coro/work.hpp"

namespace manyworlds::inline v0 {

/// Many producers, one consumer: a stack of work that the consumer takes whole and
/// reverses. The consumer announces sleep by swapping in a mark on the empty stack; the
/// producer that replaces the mark must wake it (libunifex's protocol,
/// `source/linux/io_uring_context.cpp`).
class work_inbox {
 public:
  work_inbox() = default;
  work_inbox(const work_inbox&) = delete;
  work_inbox& operator=(const work_inbox&) = delete;

  /// True if the consumer sleeps, or is about to, and must be woken by the caller.
  [[nodiscard]] bool push(work& w) noexcept {
    work* seen = top_.load(std::memory_order_relaxed);
    do {
      w.next_ = seen == mark() ? nullptr : seen;
      // Release: pairs with the acquire in `take`, which then sees what the work refers
      // to.
    } while (!top_.compare_exchange_weak(seen, &w, std::memory_order_release,
                                         std::memory_order_relaxed));
    return seen == mark();
  }

  /// Everything pushed so far, oldest first, behind what is in `queue`. Also ends an
  /// announced sleep.
  bool take(work_queue& queue) noexcept {
    if (top_.load(std::memory_order_relaxed) == nullptr) return false;
    work* taken = top_.exchange(nullptr, std::memory_order_acquire);
    if (taken == mark()) return false;
    work* oldest = nullptr;
    while (taken) {
      work* next = taken->next_;
      taken->next_ = oldest;
      oldest = taken;
      taken = next;
    }
    while (oldest) {
      work* next = oldest->next_;
      queue.push(*oldest);
      oldest = next;
    }
    return true;
  }

  /// Announces that the consumer is going to sleep. False if something was pushed: do not
  /// sleep.
  [[nodiscard]] bool announce_sleep() noexcept {
    work* expected = nullptr;
    return top_.compare_exchange_strong(expected, mark(), std::memory_order_relaxed) ||
           expected == mark();
  }

 private:
  // An address that is no work's: this object's own.
  work* mark() noexcept { return reinterpret_cast<work*>(this); }

  std::atomic<work*> top_{nullptr};
};

}  // namespace manyworlds::inline v0
