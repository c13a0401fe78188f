#include "world/world_life.hpp"

#include <utility>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

failure world_life::first_failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

rank_t world_life::reporter() const {
  const std::lock_guard lock(mutex_);
  return reported_by_;
}

void world_life::note_formed(std::uint64_t epoch) noexcept {
  MW_ASSERT(epoch != 0, "an epoch that was formed is above 0");
  MW_ASSERT(this->epoch() == 0, "a world is formed once");
  // Release: pairs with the acquire in `epoch`, which then sees the view and the links.
  epoch_.store(epoch, std::memory_order_release);
}

void world_life::enter(world_state next) noexcept {
  MW_ASSERT(may_follow(state(), next), "a world changes its state by an allowed step");
  state_.store(next, std::memory_order_release);
}

bool world_life::step(world_state from, world_state next, failure why) {
  channel_waiters told;
  {
    const std::lock_guard lock(mutex_);
    if (state() != from) return false;
    if (next == world_state::closed) {
      MW_ASSERT(failure_.cause == cause::none, "a world that is not over has not failed");
      failure_ = std::move(why);
    }
    enter(next);
    if (next == world_state::up) {
      tell(told, world_event_kind::formed, rank_, cause::none);
    } else if (next == world_state::closed && from != world_state::described) {
      tell(told, world_event_kind::closed, failure_.rank, failure_.cause);
    }
  }
  // Outside the mutex: a waiter may ask for the state at once.
  told.resume_all();
  return true;
}

std::optional<world_state> world_life::break_with(failure why, rank_t reported_by) {
  channel_waiters told;
  world_state before{};
  {
    const std::lock_guard lock(mutex_);
    before = state();
    if (before == world_state::broken || before == world_state::closed)
      return std::nullopt;
    failure_ = std::move(why);
    reported_by_ = reported_by;
    enter(world_state::broken);
    tell(told, world_event_kind::broken, failure_.rank, failure_.cause);
  }
  told.resume_all();
  return before;
}

void world_life::note_undelivered(std::vector<undelivered_messages> undelivered) {
  const std::lock_guard lock(mutex_);
  MW_ASSERT(state() == world_state::broken, "only a broken world delivers nothing");
  failure_.undelivered = std::move(undelivered);
}

void world_life::tell_of_silence(rank_t member, bool is_suspect) {
  channel_waiters told;
  {
    const std::lock_guard lock(mutex_);
    if (state() != world_state::up && state() != world_state::closing) return;
    tell(told, is_suspect ? world_event_kind::suspect : world_event_kind::recovered,
         member, cause::none);
  }
  told.resume_all();
}

void world_life::tell(channel_waiters& told, world_event_kind kind, rank_t about,
                      enum cause why) const noexcept {
  world_event e;
  e.kind = kind;
  e.world = name_;
  e.epoch = epoch();
  e.rank = about;
  e.cause = why;
  subscribers_.tell(e, told);
}

}  // namespace manyworlds::inline v0::detail
