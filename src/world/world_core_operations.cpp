// Operations of a world, on its reactor.
#include "world/world_core.hpp"

#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/operation_awaiter.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

void world_core::start(operation_awaiter& op) noexcept {
  const world_state now = state();
  const bool serves =
      now == world_state::up || (now == world_state::closed && backend_ && !we_left_);
  if (!serves) {
    op.failed_with = now == world_state::described || now == world_state::forming
                         ? cause::not_formed
                     : now == world_state::broken ? cause::none
                                                  : cause::closed;
    if (op.failed_with == cause::not_formed)
      op.failure_detail = "co_await the world first";
    if (op.failed_with == cause::closed) op.info.source = first_failure().rank;
    op.end(operation_end::failed);
    return;
  }
  if (runtime_->is_forked_child()) {
    op.fail(cause::forked, "a world cannot be used in a forked child");
    return;
  }
  MW_ASSERT(backend_, "a world that serves has its backend");
  if (op.device && !backend_->device()) [[unlikely]] {
    op.fail(cause::unsupported,
            "a world of backend host moves no device memory: form it with "
            ".backend = backend_kind::nccl");
    return;
  }
  MW_ASSERT(runtime_->user().is_current(), "an operation starts on the world's reactor");
  op.started = runtime_->user().recently();
  {
    const biased_mutex::owner_lock lock(runtime_->history().mutex());
    MW_ASSERT(!op.is_pending && !op.next_pending && !op.previous_pending,
              "an operation that starts is on no list");
    op.next_pending = pending_;
    op.previous_pending = nullptr;
    if (pending_) pending_->previous_pending = &op;
    pending_ = &op;
  }
  op.is_pending = true;
  backend_->start(op);
}

void world_core::remove_pending(operation& op, enum cause ended_by) noexcept {
  auto& awaiter = static_cast<operation_awaiter&>(op);
  if (!std::exchange(awaiter.is_pending, false)) return;
  const biased_mutex::owner_lock lock(runtime_->history().mutex());
  MW_ASSERT(
      op.previous_pending ? op.previous_pending->next_pending == &op : pending_ == &op,
      "a pending operation is on the list of its world");
  MW_ASSERT(!op.next_pending || op.next_pending->previous_pending == &op,
            "the list of pending operations is linked both ways");
  (op.previous_pending ? op.previous_pending->next_pending : pending_) = op.next_pending;
  if (op.next_pending) op.next_pending->previous_pending = op.previous_pending;
  ended_operation& ended = runtime_->history().next();
  ended.world = options_.name;
  ended.epoch = epoch();
  ended.kind = op.kind;
  ended.peer = op.peer;
  ended.lane = op.on.number();
  ended.bytes = op.bytes_moved;
  ended.begun = op.begun;
  ended.started = op.started;
  ended.ended = runtime_->user().recently();
  ended.failed_with = ended_by;
  ended.file = op.where.file_name();
  ended.line = op.where.line();
}

void world_core::break_for_the_end_of(const operation& op) noexcept {
  MW_ASSERT(is_collective(op.kind), "only a collective cannot be taken back");
  break_with(describe_failure(
      cause::runtime_stopped, options_.rank, op.kind,
      "its task was cancelled by the end of the runtime, and the others wait for it"));
}

void world_core::break_for_cancelled_collectives() noexcept {
  for (const operation* op = pending_; op; op = op->next_pending) {
    if (!is_collective(op->kind)) continue;
    if (!static_cast<const operation_awaiter&>(*op).is_given_up()) continue;
    break_for_the_end_of(*op);
    return;
  }
}

bool world_core::withdraw(operation_awaiter& op) noexcept {
  // Without a backend, or broken: the world ends the operation soon.
  if (!backend_ || state() == world_state::broken) return false;
  MW_ASSERT(op.is_pending, "an operation that is given up is pending");
  return backend_->withdraw(op);
}

void world_core::discard(rank_t peer, lane on) {
  reactor& user = runtime_->user();
  if (user.is_current()) {
    if (backend_ && state() == world_state::up) backend_->discard(peer, on);
    return;
  }
  struct posted final : work {
    posted(std::shared_ptr<world_core> core, rank_t peer, lane on)
        : work([](work& w) noexcept {
            const std::unique_ptr<posted> self(&static_cast<posted&>(w));
            self->core->discard(self->peer, self->on);
          }),
          core(std::move(core)),
          peer(peer),
          on(on) {}
    const std::shared_ptr<world_core> core;
    const rank_t peer;
    const lane on;
  };
  auto step = std::make_unique<posted>(shared_from_this(), peer, on);
  // A runtime that has ended takes no step: all its worlds are over.
  if (user.try_post(*step)) (void)step.release();
}

}  // namespace manyworlds::inline v0::detail
