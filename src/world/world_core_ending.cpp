// How a world ends: broken by a failure, or left in order.
#include "manyworlds/world/world_core.hpp"

#include <fmt/format.h>

#include "manyworlds/world/formation.hpp"
#include "manyworlds/world/operation_awaiter.hpp"
#include "manyworlds/world/runtime_core.hpp"

namespace manyworlds::inline v0 {

// --- breaking

bool world_core::break_with(failure f, rank_t reported_by) {
  bool had_begun = false;
  channel_waiters told;
  {
    const std::lock_guard lock(mutex_);
    const world_state before = state();
    if (before == world_state::broken || before == world_state::closed) return false;
    had_begun = before != world_state::described;
    failure_ = std::move(f);
    reported_by_ = reported_by;
    state_.store(world_state::broken, std::memory_order_release);
    tell_event(told, world_event_kind::broken, failure_.rank, failure_.cause);
  }
  told.resume_all();
  // What this process brings about itself when it stops is no surprise to anybody here.
  const bool expected = !had_begun || epoch() == 0 || runtime_->refuses_worlds();
  runtime_->log(expected ? log_level::info : log_level::warning, first_failure().text());
  over_.set();
  if (had_begun) {
    // The others are told before our connections to them end, or they would see only
    // that.
    on_service(announce_step_);
  } else {
    decided_.set();
    drained_.set();
  }
  return true;
}

void world_core::abandon() noexcept {
  gate_.shut();
  take_no_part();
  const world_state now = state();
  if (now == world_state::forming || now == world_state::up) {
    const bool stopping = runtime_->refuses_worlds();
    break_with(
        describe_failure(stopping ? cause::runtime_stopped : cause::abandoned,
                         options_.rank, operation_kind::none,
                         stopping ? "" : "its last handle was dropped without leave()"));
  } else if (now == world_state::closed) {
    // Closed by the others: what they left behind may still hold connections.
    begin_leaving();
  }
}

void world_core::tear_down() noexcept {
  if (!backend_) {
    quiet();
    return;
  }
  auto undelivered = backend_->undelivered();
  {
    const std::lock_guard lock(mutex_);
    failure_.undelivered = std::move(undelivered);
  }
  quiet_step_.keeps = shared_from_this();
  backend_->quiesce(quiet_step_);
}

void world_core::quiet() noexcept {
  end_pending();
  backend_ = nullptr;
  on_service(unregister_step_);
}

void world_core::end_pending() noexcept {
  while (pending_) {
    operation& op = *pending_;
    // No cause of its own: the world's first one is given.
    op.failed_with = state() == world_state::broken ? cause::none : cause::closed;
    if (backend_ && backend_->has_lost_buffers(op)) {
      op.failed_with = cause::buffers_lost;
      op.failure_detail = "the world broke (" + first_failure().text() +
                          ") and its stream does not drain: do not use them again";
    }
    op.end(operation_end::failed);
  }
}

void world_core::announce() noexcept {
  if (formation_) formation_->stop();
  tell_members();
  // Not left to the reactor, which perhaps is not turned: tasks of other runtimes may
  // wait for the outcome.
  decided_.set();
  on_reactor(tear_down_step_);
}

void world_core::tell_members() noexcept {
  failure f;
  rank_t reporter = no_rank;
  {
    const std::lock_guard lock(mutex_);
    f = failure_;
    reporter = reported_by_;
  }
  broken_message message;
  message.world_id = view_.id;
  message.why = f.cause;
  message.culprit = f.rank;
  message.detail = f.detail;
  for (rank_t r = 0; r < static_cast<rank_t>(holds_.size()); ++r) {
    const link_hold& l = holds_[static_cast<std::size_t>(r)];
    // Everyone but who told us. Also the culprit: one that was only silent must learn it
    // is out.
    if (r != options_.rank && r != reporter && l && l->is_up()) l->send(encode(message));
  }
  holds_.clear();
}

void world_core::unregister() noexcept {
  holds_.clear();
  runtime_->worlds().remove(*this);
  unregistered_ = true;
  // A forming that was cut short may still be in the middle of a call to the store.
  if (!formation_) tell_drained();
}

void world_core::tell_drained() noexcept {
  drained_.set();
  // Its runtime may be ending, and turn the reactor until all worlds are drained.
  runtime_->user().wake();
}

// --- leaving

void world_core::begin_leaving() {
  // Whoever shrinks it must not wait for a member that does not come.
  take_no_part();
  if (asked_to_leave_.exchange(true)) return;
  if (on_reactor(leave_step_)) return;
  // Nobody comes to it any more: what was never awaited is not over yet.
  break_with(
      describe_failure(cause::runtime_stopped, options_.rank, operation_kind::leave, {}));
}

void world_core::leave() noexcept {
  bool never_up = false;
  {
    const std::lock_guard lock(mutex_);
    const world_state before = state();
    if (before == world_state::broken || we_left_) return;
    if (before == world_state::described) {
      failure_ =
          describe_failure(cause::closed, options_.rank, operation_kind::leave, {});
      state_.store(world_state::closed, std::memory_order_release);
      never_up = true;
    } else if (before == world_state::up) {
      state_.store(world_state::closing, std::memory_order_release);
    }
  }
  if (never_up) {
    decided_.set();
    over_.set();
    drained_.set();
    return;
  }
  if (!backend_) {
    // Forming: the others wait for us in vain, which is an abandoned world.
    break_with(describe_failure(cause::abandoned, options_.rank, operation_kind::leave,
                                "left before it was formed"));
    return;
  }
  we_left_ = true;
  left_step_.keeps = shared_from_this();
  backend_->leave(left_step_, runtime_->user().now() + options_.drain);
}

void world_core::left() noexcept {
  bool closed_now = false;
  channel_waiters told;
  {
    const std::lock_guard lock(mutex_);
    // Broken meanwhile: the tear-down does the rest.
    if (state() == world_state::broken) return;
    closed_now = state() == world_state::closing;
    if (closed_now) {
      failure_ =
          describe_failure(cause::closed, options_.rank, operation_kind::leave, {});
      state_.store(world_state::closed, std::memory_order_release);
      tell_event(told, world_event_kind::closed, options_.rank, cause::closed);
    }
  }
  told.resume_all();
  end_pending();
  backend_ = nullptr;
  if (closed_now) {
    runtime_->log(log_level::info,
                  fmt::format("{}@{} is closed: left", options_.name.view(), epoch()));
  }
  over_.set();
  on_service(unregister_step_);
}

}  // namespace manyworlds::inline v0
