// Turnstile: lets so many in at a time, the others in the order they came.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>

#include "manyworlds/coro/continuation.hpp"

namespace manyworlds::inline v0 {

/// For tasks of one home.
class turnstile {
 public:
  explicit turnstile(std::size_t places) noexcept : free_(places) {}
  turnstile(const turnstile&) = delete;
  turnstile& operator=(const turnstile&) = delete;

  /// A place inside, given back at its end.
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
  /// The place goes to the first in the queue.
  void leave() noexcept {
    if (queue_.empty()) {
      ++free_;
      return;
    }
    enter_awaiter* next = queue_.front();
    queue_.pop_front();
    next->waiter_->resume();
  }

  std::size_t free_;
  std::deque<enter_awaiter*> queue_;
};

}  // namespace manyworlds::inline v0
