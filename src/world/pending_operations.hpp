// Pending operations: those of one world that have started and not ended.
#pragma once

#include <mutex>
#include <utility>

#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/operation_awaiter.hpp"
#include "world/operation_history.hpp"

namespace manyworlds::inline v0::detail {

/// A list through the operations themselves, the latest first. Thread: the reactor of the
/// world; a dump reads it from any, under the mutex of the history.
class pending_operations {
 public:
  explicit pending_operations(operation_history& history) noexcept : history_(history) {}

  void add(operation_awaiter& op) noexcept {
    const biased_mutex::owner_lock lock(history_.mutex());
    MW_ASSERT(!op.is_pending && !op.next_pending && !op.previous_pending,
              "an operation that starts is on no list");
    op.next_pending = first_;
    op.previous_pending = nullptr;
    if (first_) first_->previous_pending = &op;
    first_ = &op;
    op.is_pending = true;
  }

  /// Takes an operation off the list, if it is there, and notes its end in the history.
  void remove(operation_awaiter& op, std::uint64_t world, enum cause ended_by,
              time_point now) noexcept {
    if (!std::exchange(op.is_pending, false)) return;
    const biased_mutex::owner_lock lock(history_.mutex());
    MW_ASSERT(
        op.previous_pending ? op.previous_pending->next_pending == &op : first_ == &op,
        "a pending operation is on the list of its world");
    MW_ASSERT(!op.next_pending || op.next_pending->previous_pending == &op,
              "the list of pending operations is linked both ways");
    (op.previous_pending ? op.previous_pending->next_pending : first_) = op.next_pending;
    if (op.next_pending) op.next_pending->previous_pending = op.previous_pending;
    ended_operation& ended = history_.next();
    ended.world = world;
    ended.kind = op.kind;
    ended.peer = op.peer;
    ended.lane = op.on.number();
    ended.bytes = op.bytes_moved;
    ended.begun = op.begun;
    ended.started = op.started;
    ended.ended = now;
    ended.failed_with = ended_by;
    ended.file = op.where.file_name();
    ended.line = op.where.line();
  }

  /// Returns the latest, or null; `next_pending` leads to the others.
  [[nodiscard]] operation* first() const noexcept { return first_; }
  [[nodiscard]] operation_history& history() const noexcept { return history_; }

 private:
  operation_history& history_;
  operation* first_ = nullptr;
};

}  // namespace manyworlds::inline v0::detail
