// Request list: requests linked through their engine state, in order of arrival.
#pragma once

#include "manyworlds/io/io_request.hpp"

namespace manyworlds::inline v0 {

/// Owns nothing. A request is in one list at most.
class request_list {
 public:
  [[nodiscard]] bool empty() const noexcept { return head_ == nullptr; }

  void push(io_request& r) noexcept {
    r.engine.next = nullptr;
    r.engine.previous = tail_;
    (tail_ ? tail_->engine.next : head_) = &r;
    tail_ = &r;
  }

  /// The oldest, or null.
  [[nodiscard]] io_request* front() const noexcept { return head_; }
  /// The newest, or null.
  [[nodiscard]] io_request* back() const noexcept { return tail_; }

  /// Whether it is here; for a request that can be in no other list.
  [[nodiscard]] bool holds(const io_request& r) const noexcept {
    return head_ == &r || r.engine.previous != nullptr;
  }

  /// Takes the oldest, or gives null.
  io_request* pop() noexcept {
    io_request* r = head_;
    if (r) remove(*r);
    return r;
  }

  void remove(io_request& r) noexcept {
    (r.engine.previous ? r.engine.previous->engine.next : head_) = r.engine.next;
    (r.engine.next ? r.engine.next->engine.previous : tail_) = r.engine.previous;
    r.engine.next = r.engine.previous = nullptr;
  }

 private:
  io_request* head_ = nullptr;
  io_request* tail_ = nullptr;
};

}  // namespace manyworlds::inline v0
