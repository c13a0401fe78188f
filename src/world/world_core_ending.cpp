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
  const std::optional<world_state> before = life_.break_with(std::move(f), reported_by);
  if (!before) return false;
  const bool had_begun = *before != world_state::described;
  // A break that this process causes itself by stopping deserves no warning.
  const bool expected = !had_begun || epoch() == 0 || runtime_->refuses_worlds();
  runtime_->log(expected ? log_level::info : log_level::warning, first_failure().text());
  over().set();
  if (!had_begun) {
    decided().set();
    drained().set();
  } else if (runtime_->service().is_current()) {
    // The others are told before our connections to them end, or they would see only
    // that.
    announce();
  } else {
    on_service(announce_step_);
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
  life_.note_undelivered(backend_->undelivered());
  quiet_step_.keep(shared_from_this());
  backend_->quiesce(quiet_step_);
}

void world_core::quiet() noexcept {
  MW_ASSERT(runtime_->user().is_current(), "a backend gets quiet on the reactor");
  end_pending();
  backend_ = nullptr;
  runtime_->history().note_over(instance_);
  on_service(unregister_step_);
}

void world_core::end_pending() noexcept {
  while (pending_.first()) {
    operation& op = *pending_.first();
    // No cause of its own: the world's first one is given.
    op.failed_with = state() == world_state::broken ? cause::none : cause::closed;
    if (backend_ && backend_->has_lost_buffers(op)) {
      op.failed_with = cause::buffers_lost;
      op.failure_detail = "the world broke (" + first_failure().text() +
                          ") and its stream does not drain: do not use them again";
    }
    op.end(operation_end::failed);
    MW_ASSERT(pending_.first() != &op, "an operation that has ended is not pending");
  }
}

void world_core::announce() noexcept {
  MW_ASSERT(state() == world_state::broken, "only a broken world is announced");
  if (formation_) formation_->stop();
  tell_members();
  // Set here and not on the reactor, which may not be turned: tasks of other runtimes
  // may wait for the outcome.
  decided().set();
  on_reactor(tear_down_step_);
}

void world_core::tell_members() noexcept {
  members_.tell_of(first_failure(), life_.reporter());
}

void world_core::unregister() noexcept {
  MW_ASSERT(runtime_->service().is_current(), "a world leaves the router there");
  MW_ASSERT(!unregistered_, "a world leaves the router once");
  members_.let_go();
  runtime_->worlds().remove(*this);
  unregistered_ = true;
  // A forming that was cut short may still be in the middle of a call to the store.
  if (!formation_) tell_drained();
}

void world_core::tell_drained() noexcept {
  MW_ASSERT(state() == world_state::broken || state() == world_state::closed,
            "a world that is drained is over");
  drained().set();
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
  if (we_left_ || state() == world_state::broken) return;
  if (life_.step(
          world_state::described, world_state::closed,
          describe_failure(cause::closed, options_.rank, operation_kind::leave, {}))) {
    decided().set();
    over().set();
    drained().set();
    return;
  }
  // Closed already if all others have left.
  life_.step(world_state::up, world_state::closing);
  if (!backend_) {
    // Forming: the others wait for a member that does not come. That is `abandoned`.
    break_with(describe_failure(cause::abandoned, options_.rank, operation_kind::leave,
                                "left before it was formed"));
    return;
  }
  we_left_ = true;
  left_step_.keep(shared_from_this());
  backend_->leave(left_step_, runtime_->user().now() + options_.drain);
}

void world_core::left() noexcept {
  MW_ASSERT(runtime_->user().is_current(), "a world has left on its reactor");
  MW_ASSERT(we_left_, "only a member that leaves has left");
  const bool closed_now = life_.step(
      world_state::closing, world_state::closed,
      describe_failure(cause::closed, options_.rank, operation_kind::leave, {}));
  // Broken meanwhile: the tear-down does the rest.
  if (state() == world_state::broken) return;
  end_pending();
  backend_ = nullptr;
  runtime_->history().note_over(instance_);
  if (closed_now) {
    runtime_->log(log_level::info,
                  fmt::format("{}@{} is closed: left", options_.name.view(), epoch()));
  }
  over().set();
  on_service(unregister_step_);
}

void world_core::peer_left(rank_t peer) noexcept {
  MW_ASSERT(runtime_->user().is_current(), "a backend tells its world on the reactor");
  // Queued before the peer is told that we know: it may end right after, and must not
  // seem to have died.
  if (!members_.note_departure(peer)) return;
  if (!life_.step(world_state::up, world_state::closed,
                  describe_failure(cause::closed, peer, operation_kind::none,
                                   "all others have left"))) {
    return;
  }
  runtime_->log(log_level::info, fmt::format("{}@{} is closed: all others have left",
                                             options_.name.view(), epoch()));
  // It stays registered until its last connection has ended: a runtime that ends waits
  // for that.
  over().set();
}

}  // namespace manyworlds::inline v0::detail
