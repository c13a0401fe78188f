// Schedule: the messages of one collective, as its algorithm sees them.
#pragma once

#include <cstddef>
#include <deque>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "host/collective_shape.hpp"
#include "host/collective_signature.hpp"
#include "host/core.hpp"
#include "manyworlds/coro/continuation.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::host {

/// Connects a schedule to the other members, and learns that it failed.
class schedule_port {
 public:
  virtual void start_step(operation& op) noexcept = 0;
  virtual bool withdraw_step(operation& op) noexcept = 0;
  /// Called when a message failed, from within the backend: only notes it.
  virtual void step_failed() noexcept = 0;
  /// Called after a failure, once the schedule touches no buffer any longer.
  virtual void came_to_rest() noexcept = 0;

 protected:
  ~schedule_port() = default;
};

/// Says what went wrong with a collective's messages.
struct schedule_failure {
  rank_t peer = no_rank;
  enum cause why = cause::none;
  /// For a mismatch: what to say beyond what each member has entered.
  std::string detail;
  /// For a mismatch: what the peer has entered, as its message says.
  collective_signature theirs;
};

/// Carries the messages of algorithms, which are coroutines that send, receive and
/// wait. They have no error paths: when a message fails, those under way are taken back
/// and the coroutine is destroyed at its await.
class schedule {
 public:
  /// The reserved lane that carries all messages.
  static constexpr std::uint64_t lane_number = core::collective_lane;
  /// The largest part that is reduced in one turn of the reactor (law 9): it takes
  /// about 25 us.
  static constexpr std::size_t largest_slice = std::size_t{256} * 1024;

  schedule(core& shared, schedule_port& port) noexcept;
  schedule(const schedule&) = delete;
  schedule& operator=(const schedule&) = delete;
  ~schedule();

  // --- for algorithms

  [[nodiscard]] const collective_shape& shape() const noexcept { return shape_; }
  [[nodiscard]] rank_t self() const noexcept { return core_.self; }
  [[nodiscard]] rank_t size() const noexcept { return core_.size; }
  /// Returns the member `distance` behind this one, or before it. Precondition: less
  /// than a round.
  [[nodiscard]] rank_t after(rank_t distance) const noexcept {
    // No remainder: a small collective asks often, and each division takes 5 ns.
    const rank_t rank = core_.self + distance;
    return rank < 0 ? rank + core_.size : rank >= core_.size ? rank - core_.size : rank;
  }

  /// Both begin at once. Their memory is in use until a wait below has ended.
  void send(rank_t peer, std::span<const std::byte> data);
  void receive(rank_t peer, std::span<std::byte> into);

  class wait;
  /// Waits until all receives have ended.
  [[nodiscard]] wait received() noexcept;
  /// Waits until at most `most` sends have not ended.
  [[nodiscard]] wait sends_left(std::size_t most) noexcept;
  /// Waits until everything has ended.
  [[nodiscard]] wait settled() noexcept;
  /// Waits until the reactor's next turn.
  [[nodiscard]] wait yield() noexcept;
  /// Waits until the next turn if this one is used up; otherwise not at all.
  [[nodiscard]] wait yield_if_over_budget() noexcept;

  /// Returns memory that lasts until the collective ends or the next call.
  [[nodiscard]] std::span<std::byte> scratch(std::size_t bytes);

  /// Combines at most a slice. `into` may be exactly one of both.
  void combine(std::span<const std::byte> low, std::span<const std::byte> high,
               std::span<std::byte> into) noexcept;
  /// Does the last step of `avg`, on at most a slice to which all have contributed.
  void finish_reduction(std::span<std::byte> data) noexcept;

  // --- for the collectives

  void open(collective_shape&& shape, collective_signature signature) noexcept;
  /// Ends the schedule. Returns what failed, if something did.
  schedule_failure close() noexcept;
  /// Begins nothing and reports nothing afterwards.
  void stop() noexcept {
    failing_ = true;
    stopped_ = true;
  }
  [[nodiscard]] collective_signature signature() const noexcept { return signature_; }
  [[nodiscard]] std::size_t under_way() const noexcept { return sends_ + receives_; }
  /// Withdraws everything that is under way; nothing begins afterwards.
  void take_back();
  [[nodiscard]] bool is_failing() const noexcept { return failing_; }
  [[nodiscard]] const schedule_failure& failure() const noexcept { return failure_; }
  /// Fails the schedule; `why` need not come from a message.
  void fail(schedule_failure why) noexcept;

 private:
  struct step;
  struct goal {
    std::size_t sends = 0;
    std::size_t receives = 0;
  };
  static constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();
  /// How much is kept between collectives: an idle world is small.
  static constexpr std::size_t scratch_kept = 16 * 1024;
  /// Copying or combining this much takes less than a microsecond.
  static constexpr std::size_t brief_bytes = 4 * 1024;

  [[nodiscard]] step& take_step(operation_kind kind, rank_t peer);
  void step_ended(step& s, operation_end how) noexcept;
  void begin(step& s) noexcept;
  void note_failure(step& s) noexcept;
  [[nodiscard]] bool is_reached(goal g) const noexcept {
    return sends_ <= g.sends && receives_ <= g.receives;
  }
  void resume_if_reached() noexcept;

  /// Resumes the algorithm. This counts as the library's work, though a coroutine does
  /// it.
  struct next_step final : work {
    next_step() noexcept
        : work([](work& w) noexcept {
            static_cast<next_step&>(w).waiter->take().resume();
          }) {}
    using work::set_kind;
    continuation* waiter = nullptr;
  };
  /// What has come is combined next, which is too much on top of a turn's worth of
  /// reading.
  [[nodiscard]] bool has_done_enough() const noexcept {
    return next_.kind() == work_kind::library && core_.home.is_turn_used_up();
  }
  void resume(continuation& k) noexcept {
    if (has_done_enough()) return resume_next_turn(k);
    next_.waiter = &k;
    core_.home.schedule(next_);
  }
  void resume_next_turn(continuation& k) noexcept {
    next_.waiter = &k;
    core_.home.schedule_next_turn(next_);
  }

  core& core_;
  schedule_port& port_;
  collective_shape shape_;
  collective_signature signature_;
  rank_t receivers_ = 0;
  std::deque<step> steps_;
  step* idle_ = nullptr;
  std::size_t sends_ = 0;
  std::size_t receives_ = 0;
  continuation* waiter_ = nullptr;
  goal goal_;
  next_step next_;
  bool failing_ = false;
  bool stopped_ = false;
  schedule_failure failure_;
  std::unique_ptr<std::byte[]> scratch_;
  std::size_t scratch_bytes_ = 0;
};

/// Gives no value; ends the coroutine if the schedule fails.
class schedule::wait {
 public:
  wait(schedule& x, goal g, bool yields) noexcept : x_(x), goal_(g), yields_(yields) {}
  wait(const wait&) = delete;
  wait& operator=(const wait&) = delete;
  ~wait() = default;

  /// Never true after a failure with nothing under way: the coroutine is destroyed
  /// here.
  bool await_ready() const noexcept {
    return !yields_ && !x_.failing_ && x_.is_reached(goal_) && !x_.has_done_enough();
  }
  void await_start(continuation& k) noexcept {
    if (!x_.failing_ && (yields_ || x_.is_reached(goal_))) {
      return x_.resume_next_turn(k);
    }
    MW_ASSERT(!x_.waiter_, "one algorithm waits for a schedule");
    x_.waiter_ = &k;
    x_.goal_ = goal_;
  }
  /// Returns false if the coroutine is in the reactor's queue already.
  bool await_cancel() noexcept { return std::exchange(x_.waiter_, nullptr) != nullptr; }
  bool await_must_resume() const noexcept { return !x_.failing_; }
  void await_resume() const noexcept {}

 private:
  schedule& x_;
  goal goal_;
  bool yields_;
};

inline schedule::wait schedule::received() noexcept {
  return wait(*this, {unlimited, 0}, false);
}
inline schedule::wait schedule::sends_left(std::size_t most) noexcept {
  return wait(*this, {most, unlimited}, false);
}
inline schedule::wait schedule::settled() noexcept { return wait(*this, {0, 0}, false); }
inline schedule::wait schedule::yield() noexcept { return wait(*this, {}, true); }
inline schedule::wait schedule::yield_if_over_budget() noexcept {
  return wait(*this, {unlimited, unlimited}, false);
}

}  // namespace manyworlds::inline v0::detail::host
