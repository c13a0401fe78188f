// World life: the state of a world, the cause of its end, and the notices of its turning
// points.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "coro/event_hub.hpp"
#include "manyworlds/detail/notice.hpp"
#include "manyworlds/failure.hpp"
#include "manyworlds/world/world_event.hpp"
#include "manyworlds/world/world_state.hpp"

namespace manyworlds::inline v0::detail {

/// The table of allowed steps: returns whether a world may enter `next` from `now`.
[[nodiscard]] constexpr bool may_follow(world_state now, world_state next) noexcept {
  switch (now) {
    case world_state::described:
      return next == world_state::forming || next == world_state::closed ||
             next == world_state::broken;
    case world_state::forming:
      return next == world_state::up || next == world_state::broken;
    case world_state::up:
      return next == world_state::closing || next == world_state::closed ||
             next == world_state::broken;
    case world_state::closing:
      return next == world_state::closed || next == world_state::broken;
    case world_state::closed:
    case world_state::broken:
      break;
  }
  return false;
}

/// Decides each step under one mutex, so that the first cause wins on whichever thread it
/// is noticed. Subscribers are told under it too, and see the states of a world in their
/// order. Thread: any.
class world_life {
 public:
  world_life(const world_name& name, rank_t rank,
             event_hub<world_event>& subscribers) noexcept
      : name_(name), rank_(rank), subscribers_(subscribers) {}

  [[nodiscard]] world_state state() const noexcept {
    return state_.load(std::memory_order_acquire);
  }
  /// Returns 0 before the world was formed.
  [[nodiscard]] std::uint64_t epoch() const noexcept {
    return epoch_.load(std::memory_order_acquire);
  }
  /// Returns the first cause, if the world is broken or closed.
  [[nodiscard]] failure first_failure() const;
  /// Returns the member that told of the failure; none if it was noticed here.
  [[nodiscard]] rank_t reporter() const;

  /// Sets the epoch. Whatever was written before is read by those that see it.
  void note_formed(std::uint64_t epoch) noexcept;
  /// Begins to form. `queue` queues the first step under the mutex: those of a break come
  /// behind it. False if the world is no longer described.
  template <class Queue>
  [[nodiscard]] bool begin_forming(Queue queue) {
    const std::lock_guard lock(mutex_);
    if (state() != world_state::described) return false;
    enter(world_state::forming);
    queue();
    return true;
  }
  /// Enters `next` if the world is in `from`; otherwise returns false. The cause counts
  /// if the world ends by this.
  bool step(world_state from, world_state next, failure why = failure());
  /// Ends the world by a failure and returns the state that it was in, unless it was over
  /// already.
  std::optional<world_state> break_with(failure why, rank_t reported_by);
  /// Adds what was not delivered to the failure of a broken world.
  void note_undelivered(std::vector<undelivered_messages> undelivered);
  /// Tells subscribers of a member's silence, while the world lives.
  void tell_of_silence(rank_t member, bool is_suspect);

  /// Set when the world is formed, or broken before it was.
  [[nodiscard]] notice& decided() noexcept { return decided_; }
  /// Set when the world is broken or closed.
  [[nodiscard]] notice& over() noexcept { return over_; }
  /// Set when nothing of the world touches any buffer and its resources are free.
  [[nodiscard]] notice& drained() noexcept { return drained_; }

 private:
  void enter(world_state next) noexcept;
  void tell(channel_waiters& told, world_event_kind kind, rank_t about,
            enum cause why) const noexcept;

  const world_name name_;
  const rank_t rank_;
  event_hub<world_event>& subscribers_;
  mutable std::mutex mutex_;
  std::atomic<world_state> state_{world_state::described};
  std::atomic<std::uint64_t> epoch_{0};
  failure failure_;               // guarded by mutex_
  rank_t reported_by_ = no_rank;  // guarded by mutex_
  notice decided_;
  notice over_;
  notice drained_;
};

}  // namespace manyworlds::inline v0::detail
