// Timer queue: the timers of one executor in an intrusive binary heap, ordered by time
// and then by arming.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/time.hpp"

namespace manyworlds::inline v0::detail {

/// A point in time at which something happens, embedded in the object that waits for it.
/// It is neither copied nor moved. Lifetime: disarm it before it is destroyed.
class timer {
 public:
  using function = void (*)(timer&) noexcept;

  explicit timer(function expired) noexcept : expired_(expired) {}
  timer(const timer&) = delete;
  timer& operator=(const timer&) = delete;

  [[nodiscard]] bool is_armed() const noexcept { return slot_ != idle; }
  [[nodiscard]] time_point when() const noexcept { return when_; }

 private:
  friend class timer_queue;
  static constexpr std::size_t idle = static_cast<std::size_t>(-1);

  time_point when_{};
  std::uint64_t order_ = 0;
  std::size_t slot_ = idle;
  function expired_;
};

/// All armed timers of one executor. Thread: the executor's only.
class timer_queue {
 public:
  timer_queue() = default;
  timer_queue(const timer_queue&) = delete;
  timer_queue& operator=(const timer_queue&) = delete;

  /// Arms a timer, or moves an armed one to another time.
  void arm(timer& t, time_point when);
  /// Disarms a timer. Does nothing if it is not armed.
  void disarm(timer& t) noexcept;

  [[nodiscard]] bool empty() const noexcept { return heap_.empty(); }
  /// Returns when the earliest timer expires.
  [[nodiscard]] std::optional<time_point> next() const noexcept {
    if (heap_.empty()) return std::nullopt;
    return heap_.front()->when_;
  }
  /// Runs timers due at `now`, at most `limit` of them (a turn is bounded). Returns how
  /// many ran.
  std::size_t expire(time_point now, std::size_t limit) noexcept;

 private:
  static bool earlier(const timer& a, const timer& b) noexcept {
    return a.when_ != b.when_ ? a.when_ < b.when_ : a.order_ < b.order_;
  }
  void place(timer& t, std::size_t slot) noexcept {
    MW_ASSERT(slot < heap_.size(), "a timer's slot lies in the heap");
    heap_[slot] = &t;
    t.slot_ = slot;
  }
  void sift_up(std::size_t slot) noexcept;
  void sift_down(std::size_t slot) noexcept;

  std::vector<timer*> heap_;
  std::uint64_t armed_ = 0;
};

// --------------------------------------------------------------------------------------

inline void timer_queue::arm(timer& t, time_point when) {
  disarm(t);
  t.when_ = when;
  t.order_ = armed_++;
  heap_.push_back(&t);
  t.slot_ = heap_.size() - 1;
  sift_up(t.slot_);
}

inline void timer_queue::disarm(timer& t) noexcept {
  if (!t.is_armed()) return;
  const std::size_t slot = t.slot_;
  MW_ASSERT(slot < heap_.size() && heap_[slot] == &t,
            "a timer is disarmed in the queue that it was armed in");
  timer& last = *heap_.back();
  heap_.pop_back();
  t.slot_ = timer::idle;
  if (&last == &t) return;
  place(last, slot);
  sift_up(slot);
  sift_down(last.slot_);
}

inline std::size_t timer_queue::expire(time_point now, std::size_t limit) noexcept {
  std::size_t count = 0;
  while (count < limit && !heap_.empty() && heap_.front()->when_ <= now) {
    timer& t = *heap_.front();
    disarm(t);
    MW_ASSERT(heap_.empty() || !earlier(*heap_.front(), t),
              "timers expire in the order of their times");
    ++count;
    t.expired_(t);
  }
  return count;
}

inline void timer_queue::sift_up(std::size_t slot) noexcept {
  timer& t = *heap_[slot];
  while (slot > 0) {
    const std::size_t parent = (slot - 1) / 2;
    if (!earlier(t, *heap_[parent])) break;
    place(*heap_[parent], slot);
    slot = parent;
  }
  place(t, slot);
}

inline void timer_queue::sift_down(std::size_t slot) noexcept {
  timer& t = *heap_[slot];
  for (;;) {
    std::size_t child = 2 * slot + 1;
    if (child >= heap_.size()) break;
    if (child + 1 < heap_.size() && earlier(*heap_[child + 1], *heap_[child])) ++child;
    if (!earlier(*heap_[child], t)) break;
    place(*heap_[child], slot);
    slot = child;
  }
  place(t, slot);
}

}  // namespace manyworlds::inline v0::detail
