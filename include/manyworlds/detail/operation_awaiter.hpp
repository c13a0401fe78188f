// Operation awaiter: one operation on a world, from any coroutine, with its deadline
// and stop token.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "manyworlds/coro/continuation.hpp"
#include "manyworlds/detail/member_work.hpp"
#include "manyworlds/detail/operation.hpp"
#include "manyworlds/detail/operation_request.hpp"

namespace manyworlds::inline v0::detail {

/// The operation itself, built in place where it is awaited. It starts on the world's
/// reactor, by one post if the awaiting task lives elsewhere. It resumes the task at
/// the home of the task.
class operation_awaiter : public operation {
 public:
  explicit operation_awaiter(operation_request&& request) noexcept
      : operation(request.kind), core_(request.core), token_(std::move(request.stop)) {
    peer = request.peer;
    on = request.on;
    user = request.user;
    takes_fresh_lanes = request.takes_fresh_lanes;
    delivered = request.delivered;
    discards = request.discards;
    limit = request.limit;
    head = const_cast<void*>(request.head);
    head_bytes = request.head_bytes;
    gives_payload = request.gives_payload;
    where = request.where;
  }
  ~operation_awaiter() = default;

  /// Says to a task that it need not ask `await_must_resume` unless it was cancelled.
  using cancelled_only_if_asked = void;

  /// Tries to do at once what needs no wait: it then leaves no trace but counters.
  bool await_ready() noexcept;
  bool await_start(continuation& k) noexcept;
  bool await_cancel() noexcept;
  bool await_must_resume() const noexcept { return outcome_ != outcome::cancelled; }
  /// Throws world_error unless the operation took effect.
  void await_resume();
  /// Returns where it runs, and where foreign coroutines resume unless they say
  /// otherwise.
  [[nodiscard]] executor& await_home() const noexcept;

  /// Returns the failure instead of throwing; an empty one if the operation took
  /// effect.
  [[nodiscard]] failure take_failure();

  /// Returns whether it was asked to end early, and has not ended yet.
  [[nodiscard]] bool is_given_up() const noexcept {
    return outcome_ == outcome::pending && given_up_ != reason::none;
  }

  bool is_pending = false;  ///< the core lists it

 private:
  enum class outcome : unsigned char { pending, done, failed, cancelled };
  enum class reason : unsigned char { none, task_cancelled, stopped, late };

  void begin_here() noexcept;
  void cancel_here() noexcept;
  void stop_here() noexcept;
  void limit_is_over() noexcept { give_up(reason::late); }

  struct on_stop {
    operation_awaiter* op;
    void operator()() const noexcept;
  };
  /// Lets other threads and timers reach an operation that has a deadline or a stop
  /// token, or is awaited elsewhere. Most have none of these and do not pay for it
  /// (20 ns).
  struct interruption {
    explicit interruption(operation_awaiter& op) noexcept
        : limit(op), start(op), cancel(op), stop(op) {}

    member_timer<&operation_awaiter::limit_is_over> limit;
    member_work<&operation_awaiter::begin_here> start;
    member_work<&operation_awaiter::cancel_here> cancel;
    member_work<&operation_awaiter::stop_here> stop;
    std::optional<std::stop_callback<on_stop>> on_token;
    /// Set if started from another executor: the handle may be dropped before the start
    /// arrives.
    std::shared_ptr<world_core> keeps;
    /// Counts the work queued at the world's reactor that refers to the operation.
    /// `shut`: the waiter is being resumed, and none may be queued.
    std::atomic<int> gate{0};
  };
  static constexpr int shut = -1;

  friend void end_awaited(operation& op, operation_end how) noexcept;
  void note_end(operation_end how) noexcept;
  void begin() noexcept;
  bool give_up(reason why) noexcept;
  void finish(outcome how) noexcept;
  void resume_if_quiet() noexcept;
  /// Returns true unless work is queued that refers to this object; then none can be
  /// queued from now on.
  [[nodiscard]] bool shut_gate() noexcept;
  void disarm() noexcept;
  [[nodiscard]] interruption& interruptible() noexcept {
    return interruption_ ? *interruption_ : interruption_.emplace(*this);
  }
  /// Queues work at the world's reactor unless the waiter is on its way.
  bool queue(work& w) noexcept;
  void work_is_done() noexcept;
  void make_failure() noexcept;
  /// Names the peer and the lane of a message.
  void name_message(failure& f) const noexcept;
  [[nodiscard]] bool is_invalid() const noexcept;
  /// Returns how many members get what this operation moves.
  [[nodiscard]] std::size_t copies() const noexcept;
  /// Returns the first of the targets that is no other member, or null.
  [[nodiscard]] const rank_t* invalid_target() const noexcept;
  /// Returns why it is. Precondition: `is_invalid()`.
  [[nodiscard]] std::string invalid_text() const;

  world_core* core_;
  std::stop_token token_;
  std::optional<interruption> interruption_;
  continuation* waiter_ = nullptr;
  std::unique_ptr<failure> failure_;
  outcome outcome_ = outcome::pending;
  reason given_up_ = reason::none;
  bool is_starting_ = false;
  bool is_remote_ = false;
  /// Set if the runtime of the awaiting task ends: it must not wait for other
  /// processes.
  bool must_end_ = false;
};

}  // namespace manyworlds::inline v0::detail
