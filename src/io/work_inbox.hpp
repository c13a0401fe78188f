// Work inbox: other threads hand work to a reactor without locks, and wake it only if it
// sleeps.
#pragma once

#include <atomic>

#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/work.hpp"

namespace manyworlds::inline v0::detail {

/// A stack of work with many producers and one consumer, which takes it whole and
/// reverses it. The consumer announces sleep by swapping in a mark on the empty stack.
/// The producer that replaces the mark must wake it (libunifex's protocol,
/// `source/linux/io_uring_context.cpp`).
class work_inbox {
 public:
  work_inbox() = default;
  work_inbox(const work_inbox&) = delete;
  work_inbox& operator=(const work_inbox&) = delete;

  /// Pushes work. Returns true if the consumer sleeps, or is about to, and the caller
  /// must wake it. Thread: any.
  [[nodiscard]] bool push(work& w) noexcept {
    work* seen = top_.load(std::memory_order_relaxed);
    do {
      w.next_ = seen == mark() ? nullptr : seen;
      // Release: pairs with the acquire in `take`, which then sees what the work refers
      // to.
    } while (!top_.compare_exchange_weak(seen, &w, std::memory_order_release,
                                         std::memory_order_relaxed));
    MW_ASSERT(seen != &w, "work is not pushed again before it ran");
    return seen == mark();
  }

  /// Moves everything pushed so far, oldest first, behind the entries of `queue`. Also
  /// ends an announced sleep. Returns true if there was any. Thread: the consumer's.
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

  /// Announces that the consumer is going to sleep. Returns false if something was
  /// pushed: then it must not sleep. Thread: the consumer's.
  [[nodiscard]] bool announce_sleep() noexcept {
    work* expected = nullptr;
    return top_.compare_exchange_strong(expected, mark(), std::memory_order_relaxed) ||
           expected == mark();
  }

 private:
  // The mark is this object's own address, which is never a work's address.
  work* mark() noexcept { return reinterpret_cast<work*>(this); }

  std::atomic<work*> top_{nullptr};
};

}  // namespace manyworlds::inline v0::detail
