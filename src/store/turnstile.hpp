// Turnstile: admits a number of tasks at a time, the others in the order in which they
// came.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>

#include "manyworlds/coro/continuation.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

/// Limits how many tasks do something at a time. Thread: the home of its tasks.
class turnstile {
 public:
  explicit turnstile(std::size_t places) noexcept : free_(places) {}
  turnstile(const turnstile&) = delete;
  turnstile& operator=(const turnstile&) = delete;

  /// A place inside, which is given back at its end.
  class place {
   public:
    explicit place(turnstile& t) noexcept : turnstile_(&t) {}
    place(place&& other) noexcept
        : turnstile_(std::exchange(other.turnstile_, nullptr)) {}
    place& operator=(place&&) = delete;
    ~place() {
      if (turnstile_) turnstile_->leave();
    }

   private:
    turnstile* turnstile_;
  };

  class enter_awaiter {
   public:
    explicit enter_awaiter(turnstile& t) noexcept : turnstile_(t) {}

    bool await_ready() const noexcept {
      if (turnstile_.free_ == 0) return false;
      --turnstile_.free_;
      return true;
    }
    void await_start(continuation& k) {
      MW_ASSERT(!waiter_ && turnstile_.free_ == 0,
                "a task queues only while no place is free");
      waiter_ = &k;
      turnstile_.queue_.push_back(this);
    }
    bool await_cancel() noexcept { return std::erase(turnstile_.queue_, this) > 0; }
    bool await_must_resume() const noexcept { return true; }
    place await_resume() noexcept { return place(turnstile_); }

   private:
    friend class turnstile;
    turnstile& turnstile_;
    continuation* waiter_ = nullptr;
  };
  [[nodiscard]] enter_awaiter enter() noexcept { return enter_awaiter(*this); }

 private:
  /// Passes the place to the first in the queue.
  void leave() noexcept {
    if (queue_.empty()) {
      ++free_;
      return;
    }
    MW_ASSERT(free_ == 0, "no task queues while a place is free");
    enter_awaiter* next = queue_.front();
    queue_.pop_front();
    next->waiter_->resume();
  }

  std::size_t free_;
  std::deque<enter_awaiter*> queue_;
};

}  // namespace manyworlds::inline v0::detail
