// Work: an intrusive unit of "run this soon"; executors queue nothing else.
#pragma once

#include <cstdint>

#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0::detail {

/// Says what the time of a work counts as, for a reactor that meters its turns.
enum class work_kind : std::uint8_t {
  library,
  brief,  ///< the library's, and shorter than a look at the clock
  tasks,  ///< resumes a task
};

/// Something that an executor runs once. The node is embedded in the object that waits (a
/// coroutine's promise, an operation, a timer), so that queueing allocates nothing.
/// Lifetime: its embedder owns it, and it must stay alive and must not be queued again
/// until it ran.
class work {
 public:
  using function = void (*)(work&) noexcept;

  explicit work(function f, work_kind kind = work_kind::library) noexcept
      : run_(f), kind_(kind) {}
  work(const work&) = delete;
  work& operator=(const work&) = delete;

  void run() noexcept { run_(*this); }
  [[nodiscard]] work_kind kind() const noexcept { return kind_; }

 protected:
  ~work() = default;
  void set_kind(work_kind kind) noexcept { kind_ = kind; }

 private:
  friend class work_queue;
  friend class work_inbox;
  work* next_ = nullptr;
  function run_;
  work_kind kind_;
};

/// A first-in first-out queue of one thread's work.
class work_queue {
 public:
  work_queue() = default;
  work_queue(const work_queue&) = delete;
  work_queue& operator=(const work_queue&) = delete;

  [[nodiscard]] bool empty() const noexcept { return head_ == nullptr; }

// Work on a waiter's stack is queued and gone before the waiter returns: g++ 12 sees only
// the former when this is inlined.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdangling-pointer"
#endif
  void push(work& w) noexcept {
    MW_ASSERT(tail_ != &w.next_, "work is not queued again before it ran");
    w.next_ = nullptr;
    *tail_ = &w;
    tail_ = &w.next_;
  }
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

  /// Takes the oldest entry, or returns null.
  work* pop() noexcept {
    work* w = head_;
    MW_ASSERT((head_ == nullptr) == (tail_ == &head_), "an empty queue ends at its head");
    if (w) {
      head_ = w->next_;
      if (!head_) tail_ = &head_;
    }
    return w;
  }

  /// Moves all entries of `other` behind those that are here.
  void append(work_queue& other) noexcept {
    MW_ASSERT(this != &other, "a queue is appended to another one");
    if (other.empty()) return;
    *tail_ = other.head_;
    tail_ = other.tail_;
    other.head_ = nullptr;
    other.tail_ = &other.head_;
  }

 private:
  work* head_ = nullptr;
  work** tail_ = &head_;
};

}  // namespace manyworlds::inline v0::detail
