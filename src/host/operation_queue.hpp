// Operation queue: waiting operations in order, linked through their backend hooks.
#pragma once

#include <cstddef>
#include <string>

#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/operation.hpp"

namespace manyworlds::inline v0::detail::host {

/// Says where an operation of this backend stands (`operation::backend.stage`), and so
/// what `operation::backend.state` points to.
enum class stage : std::size_t {
  none,        ///< ended, or not begun
  queued,      ///< in the operation_queue `state`
  pending,     ///< a send that is the pending_send `state`
  taking,      ///< a receive that takes the inbound_message `state`
  fanned_out,  ///< a send to several members: the fan_out_send with its parts, `state`
};

inline stage stage_of(const operation& op) noexcept {
  return static_cast<stage>(op.backend.stage);
}
inline void set_stage(operation& op, stage s, void* state) noexcept {
  op.backend.stage = static_cast<std::size_t>(s);
  op.backend.state = state;
}

inline std::string has_left_text(rank_t rank) {
  return "rank " + std::to_string(rank) + " has left";
}

/// Links operations first in, first out; any can be removed. Owns nothing.
class operation_queue {
 public:
  operation_queue() = default;
  operation_queue(const operation_queue&) = delete;
  operation_queue& operator=(const operation_queue&) = delete;

  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] operation* front() const noexcept { return first_; }
  [[nodiscard]] static operation* next(const operation& op) noexcept {
    return op.backend.next;
  }

  void push_back(operation& op) noexcept { insert_after(last_, op); }
  void push_front(operation& op) noexcept { insert_after(nullptr, op); }

  /// Inserts an operation at the place that its number gives.
  void push_in_order(operation& op) noexcept {
    operation* before = last_;
    while (before && before->backend.number > op.backend.number) {
      before = before->backend.previous;
    }
    insert_after(before, op);
  }

  void remove(operation& op) noexcept {
    MW_ASSERT(stage_of(op) == stage::queued && op.backend.state == this,
              "an operation is removed only from the queue that it stands in");
    MW_ASSERT(size_ > 0, "a queue has as many operations as it counts");
    MW_ASSERT((op.backend.previous ? op.backend.previous->backend.next : first_) == &op,
              "the neighbours of a linked operation point to it");
    (op.backend.previous ? op.backend.previous->backend.next : first_) = op.backend.next;
    (op.backend.next ? op.backend.next->backend.previous : last_) = op.backend.previous;
    op.backend.next = op.backend.previous = nullptr;
    set_stage(op, stage::none, nullptr);
    --size_;
  }

  operation* pop_front() noexcept {
    operation* op = first_;
    if (op) remove(*op);
    return op;
  }

  /// Fails all operations, oldest first.
  void fail_all(enum cause why, const std::string& detail) {
    while (operation* op = pop_front()) op->fail(why, detail);
  }

 private:
  void insert_after(operation* before, operation& op) noexcept {
    MW_ASSERT(stage_of(op) == stage::none && !op.backend.next && !op.backend.previous,
              "an operation that begins to wait is not linked yet");
    MW_ASSERT((size_ == 0) == (first_ == nullptr),
              "a queue has as many operations as it counts");
    op.backend.previous = before;
    op.backend.next = before ? before->backend.next : first_;
    (before ? before->backend.next : first_) = &op;
    (op.backend.next ? op.backend.next->backend.previous : last_) = &op;
    set_stage(op, stage::queued, this);
    ++size_;
  }

  operation* first_ = nullptr;
  operation* last_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace manyworlds::inline v0::detail::host
