// Exchange: the messages of one collective, as its algorithm sees them.
#pragma once

#include <cstddef>
#include <deque>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "collective_shape.hpp"
#include "collective_signature.hpp"
#include "core.hpp"
#include "manyworlds/coro/continuation.hpp"

namespace manyworlds::inline v0::host {

/// How an exchange reaches the other members, and whom it tells that it failed.
class exchange_port {
 public:
  virtual void start_step(operation& op) noexcept = 0;
  virtual bool withdraw_step(operation& op) noexcept = 0;
  /// A message could not be brought. From within the backend: only notes it.
  virtual void step_failed() noexcept = 0;
  /// After a failure: nothing of the exchange touches any buffer any more.
  virtual void came_to_rest() noexcept = 0;

 protected:
  ~exchange_port() = default;
};

/// What went wrong with a collective's messages.
struct exchange_failure {
  rank_t peer = no_rank;
  enum cause why = cause::none;
  /// Of a mismatch, what to say beyond what each has entered.
  std::string detail;
  /// Of a mismatch: what the peer's message says that it has entered.
  collective_signature theirs;
};

/// Algorithms are coroutines that say what goes where, and wait. They have no error
/// paths: when a message fails, what is under way is taken back and the coroutine is
/// destroyed at its await.
class exchange {
 public:
  /// The library's own lane, in which all of it goes.
  static constexpr std::uint64_t lane_number = core::collective_lane;
  /// Largest part that is reduced in one turn of the reactor (law 9): it takes some 25
  /// us.
  static constexpr std::size_t largest_slice = std::size_t{256} * 1024;

  exchange(core& shared, exchange_port& port) noexcept;
  exchange(const exchange&) = delete;
  exchange& operator=(const exchange&) = delete;
  ~exchange();

  // --- for algorithms

  [[nodiscard]] const collective_shape& shape() const noexcept { return shape_; }
  [[nodiscard]] rank_t self() const noexcept { return core_.self; }
  [[nodiscard]] rank_t size() const noexcept { return core_.size; }
  /// The member `distance` behind this one, or before it, once round at most.
  [[nodiscard]] rank_t after(rank_t distance) const noexcept {
    // Not by a remainder: a small collective asks often, and each takes 5 ns.
    const rank_t rank = core_.self + distance;
    return rank < 0 ? rank + core_.size : rank >= core_.size ? rank - core_.size : rank;
  }

  /// Both begin at once; their memory is in use until the waits below say otherwise.
  void send(rank_t peer, std::span<const std::byte> data);
  void receive(rank_t peer, std::span<std::byte> into);

  class wait;
  /// Until all receives have ended.
  [[nodiscard]] wait received() noexcept;
  /// Until at most so many sends have not ended.
  [[nodiscard]] wait sends_left(std::size_t most) noexcept;
  /// Until everything has ended.
  [[nodiscard]] wait settled() noexcept;
  /// Until the reactor's next turn.
  [[nodiscard]] wait breath() noexcept;
  /// Not at all, or until the next turn if this one is used up.
  [[nodiscard]] wait share_of_turn() noexcept;

  /// Memory until the collective ends; one at a time.
  [[nodiscard]] std::span<std::byte> scratch(std::size_t bytes);

  /// `into` may be exactly one of both; at most a slice.
  void combine(std::span<const std::byte> low, std::span<const std::byte> high,
               std::span<std::byte> into) noexcept;
  /// What `avg` does last, with what all have contributed to; at most a slice.
  void finish_reduction(std::span<std::byte> data) noexcept;

  // --- for the collectives

  void open(collective_shape&& shape, collective_signature signature) noexcept;
  /// Over: gives what failed, if it did.
  exchange_failure close() noexcept;
  /// Nothing begins any more, and nobody is told of anything.
  void stop() noexcept {
    failing_ = true;
    stopped_ = true;
  }
  [[nodiscard]] collective_signature signature() const noexcept { return signature_; }
  [[nodiscard]] std::size_t under_way() const noexcept { return sends_ + receives_; }
  /// Takes everything back that is under way; nothing begins any more.
  void take_back();
  [[nodiscard]] bool is_failing() const noexcept { return failing_; }
  [[nodiscard]] const exchange_failure& failure() const noexcept { return failure_; }
  /// Fails for a reason that is not a message's.
  void fail(exchange_failure why) noexcept;

 private:
  struct step;
  struct goal {
    std::size_t sends = 0;
    std::size_t receives = 0;
  };
  static constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();
  /// What is kept between collectives: an idle world is small.
  static constexpr std::size_t scratch_kept = 16 * 1024;
  /// To copy or combine so much takes less than a microsecond.
  static constexpr std::size_t brief_bytes = 4 * 1024;

  [[nodiscard]] step& take_step(operation_kind kind, rank_t peer);
  void step_ended(step& s, operation_end how) noexcept;
  void begin(step& s) noexcept;
  void note_failure(step& s) noexcept;
  [[nodiscard]] bool is_reached(goal g) const noexcept {
    return sends_ <= g.sends && receives_ <= g.receives;
  }
  void resume_if_reached() noexcept;

  /// Resumes the algorithm: the library's work, though it is a coroutine's.
  struct next_step final : work {
    next_step() noexcept
        : work([](work& w) noexcept {
            static_cast<next_step&>(w).waiter->take().resume();
          }) {}
    using work::set_kind;
    continuation* waiter = nullptr;
  };
  /// What has come is combined next: on top of a turn's worth of reading it is too much.
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
  exchange_port& port_;
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
  exchange_failure failure_;
  std::unique_ptr<std::byte[]> scratch_;
  std::size_t scratch_bytes_ = 0;
};

/// Gives nothing; ends the coroutine if the exchange fails.
class exchange::wait {
 public:
  wait(exchange& x, goal g, bool yields) noexcept : x_(x), goal_(g), yields_(yields) {}
  wait(const wait&) = delete;
  wait& operator=(const wait&) = delete;
  ~wait() = default;

  /// Never once it fails, when nothing is under way: the coroutine is destroyed here.
  bool await_ready() const noexcept {
    return !yields_ && !x_.failing_ && x_.is_reached(goal_) && !x_.has_done_enough();
  }
  void await_start(continuation& k) noexcept {
    if (!x_.failing_ && (yields_ || x_.is_reached(goal_))) {
      return x_.resume_next_turn(k);
    }
    x_.waiter_ = &k;
    x_.goal_ = goal_;
  }
  /// False if the coroutine is in the reactor's queue already.
  bool await_cancel() noexcept { return std::exchange(x_.waiter_, nullptr) != nullptr; }
  bool await_must_resume() const noexcept { return !x_.failing_; }
  void await_resume() const noexcept {}

 private:
  exchange& x_;
  goal goal_;
  bool yields_;
};

inline exchange::wait exchange::received() noexcept {
  return wait(*this, {unlimited, 0}, false);
}
inline exchange::wait exchange::sends_left(std::size_t most) noexcept {
  return wait(*this, {most, unlimited}, false);
}
inline exchange::wait exchange::settled() noexcept { return wait(*this, {0, 0}, false); }
inline exchange::wait exchange::breath() noexcept { return wait(*this, {}, true); }
inline exchange::wait exchange::share_of_turn() noexcept {
  return wait(*this, {unlimited, unlimited}, false);
}

}  // namespace manyworlds::inline v0::host
