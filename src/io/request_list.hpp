// Request list: requests that are linked through their engine state, in order of arrival.
#pragma once

#include "io/io_request.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

/// A list that owns nothing. A request is in one list at most.
class request_list {
 public:
  [[nodiscard]] bool empty() const noexcept { return head_ == nullptr; }

  void push(io_request& r) noexcept {
    MW_ASSERT(!r.engine.previous && !r.engine.next && head_ != &r,
              "a request is in one list at a time");
    r.engine.next = nullptr;
    r.engine.previous = tail_;
    (tail_ ? tail_->engine.next : head_) = &r;
    tail_ = &r;
  }

  /// Returns the oldest, or null.
  [[nodiscard]] io_request* front() const noexcept { return head_; }
  /// Returns the newest, or null.
  [[nodiscard]] io_request* back() const noexcept { return tail_; }

  /// Returns true if it is here. Precondition: the request can be in no other list.
  [[nodiscard]] bool holds(const io_request& r) const noexcept {
    return head_ == &r || r.engine.previous != nullptr;
  }

  /// Takes the oldest, or returns null.
  io_request* pop() noexcept {
    io_request* r = head_;
    if (r) remove(*r);
    return r;
  }

  void remove(io_request& r) noexcept {
    MW_ASSERT((r.engine.previous ? r.engine.previous->engine.next : head_) == &r &&
                  (r.engine.next ? r.engine.next->engine.previous : tail_) == &r,
              "a request is removed from the list that it is in");
    (r.engine.previous ? r.engine.previous->engine.next : head_) = r.engine.next;
    (r.engine.next ? r.engine.next->engine.previous : tail_) = r.engine.previous;
    r.engine.next = r.engine.previous = nullptr;
  }

 private:
  io_request* head_ = nullptr;
  io_request* tail_ = nullptr;
};

}  // namespace manyworlds::inline v0::detail
