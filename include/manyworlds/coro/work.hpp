// Work: an intrusive unit of "run this soon", the only thing executors queue.
#pragma once

#include <cstdint>

#include "manyworlds/config.hpp"

namespace manyworlds::inline v0 {

/// Whose time it is when a work runs: for those who keep account of it.
enum class work_kind : std::uint8_t {
  library,
  brief,  ///< the library's, and over before a look at the clock would be
  tasks,  ///< resumes a task
};

/// Something an executor runs once. The node is embedded in whatever waits (a coroutine's
/// promise, an operation, a timer), so that queueing allocates nothing. Owned by its
/// embedder; it must stay alive and must not be queued again until it ran.
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

/// A first-in first-out queue of work of one thread.
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
    w.next_ = nullptr;
    *tail_ = &w;
    tail_ = &w.next_;
  }
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

  /// The oldest entry, or null.
  work* pop() noexcept {
    work* w = head_;
    if (w) {
      head_ = w->next_;
      if (!head_) tail_ = &head_;
    }
    return w;
  }

  /// Moves everything of `other` behind what is here.
  void append(work_queue& other) noexcept {
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

}  // namespace manyworlds::inline v0
