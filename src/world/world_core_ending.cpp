// How a world ends: broken by a failure, or left in order.
#include "world/world_core.hpp"

#include <fmt/format.h>

#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/operation_awaiter.hpp"
#include "world/formation.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

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
    enter(world_state::broken);
    tell_event(told, world_event_kind::broken, failure_.rank, failure_.cause);
  }
  told.resume_all();
  // A break that this process causes itself by stopping deserves no warning.
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
    // Closed by the others: its backend may still hold connections.
    begin_leaving();
  }
}

void world_core::tear_down() noexcept {
  MW_ASSERT(runtime_->user().is_current(), "a world is torn down on its reactor");
  MW_ASSERT(state() == world_state::broken, "only a broken world is torn down");
  if (!backend_) {
    quiet();
    return;
  }
  auto undelivered = backend_->undelivered();
  {
    const std::lock_guard lock(mutex_);
    failure_.undelivered = std::move(undelivered);
  }
  MW_ASSERT(!quiet_step_.keeps, "a backend is quiesced once");
  quiet_step_.keeps = shared_from_this();
  backend_->quiesce(quiet_step_);
}

void world_core::quiet() noexcept {
  MW_ASSERT(runtime_->user().is_current(), "a backend gets quiet on the reactor");
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
    MW_ASSERT(pending_ != &op, "an operation that has ended is not pending");
  }
}

void world_core::announce() noexcept {
  MW_ASSERT(state() == world_state::broken, "only a broken world is announced");
  if (formation_) formation_->stop();
  tell_members();
  // Set here and not on the reactor, which may not be turned: tasks of other runtimes
  // may wait for the outcome.
  decided_.set();
  on_reactor(tear_down_step_);
}

void world_core::tell_members() noexcept {
  MW_ASSERT(runtime_->service().is_current(), "members are told on the service reactor");
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
    // All but the member that told us. Also the culprit: if it was only silent it must
    // learn that it is out.
    if (r != options_.rank && r != reporter && l && l->is_up()) l->send(encode(message));
  }
  holds_.clear();
}

void world_core::unregister() noexcept {
  MW_ASSERT(runtime_->service().is_current(), "a world leaves the router there");
  MW_ASSERT(!unregistered_, "a world leaves the router once");
  holds_.clear();
  runtime_->worlds().remove(*this);
  unregistered_ = true;
  // A forming that was cut short may still be in the middle of a call to the store.
  if (!formation_) tell_drained();
}

void world_core::tell_drained() noexcept {
  MW_ASSERT(state() == world_state::broken || state() == world_state::closed,
            "a world that is drained is over");
  drained_.set();
  // Its runtime may be ending, and turn the reactor until all worlds are drained.
  runtime_->user().wake();
}

// --- leaving

void world_core::begin_leaving() {
  // Members that shrink it must not wait for one that does not come.
  take_no_part();
  if (asked_to_leave_.exchange(true)) return;
  if (on_reactor(leave_step_)) return;
  // The runtime has ended and cannot take the step: end a world that was never awaited.
  break_with(
      describe_failure(cause::runtime_stopped, options_.rank, operation_kind::leave, {}));
}

void world_core::leave() noexcept {
  MW_ASSERT(runtime_->user().is_current(), "a world is left on its reactor");
  bool never_up = false;
  {
    const std::lock_guard lock(mutex_);
    const world_state before = state();
    if (before == world_state::broken || we_left_) return;
    if (before == world_state::described) {
      failure_ =
          describe_failure(cause::closed, options_.rank, operation_kind::leave, {});
      enter(world_state::closed);
      never_up = true;
    } else if (before == world_state::up) {
      enter(world_state::closing);
    }
  }
  if (never_up) {
    decided_.set();
    over_.set();
    drained_.set();
    return;
  }
  if (!backend_) {
    // Forming: the others wait for a member that does not come. That is `abandoned`.
    break_with(describe_failure(cause::abandoned, options_.rank, operation_kind::leave,
                                "left before it was formed"));
    return;
  }
  we_left_ = true;
  MW_ASSERT(!left_step_.keeps, "a backend is left once");
  left_step_.keeps = shared_from_this();
  backend_->leave(left_step_, runtime_->user().now() + options_.drain);
}

void world_core::left() noexcept {
  MW_ASSERT(runtime_->user().is_current(), "a world has left on its reactor");
  MW_ASSERT(we_left_, "only a member that leaves has left");
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
      enter(world_state::closed);
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

}  // namespace manyworlds::inline v0::detail
