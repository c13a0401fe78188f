#include "manyworlds/world/world.hpp"

#include "manyworlds/world/runtime.hpp"
#include "manyworlds/world/runtime_core.hpp"

namespace manyworlds::inline v0 {

void formation_awaiter::await_resume() const {
  if (core_->epoch() == 0 || core_->state() == world_state::broken) {
    throw world_error(core_->first_failure());
  }
}

executor& formation_awaiter::await_home() const noexcept {
  return core_->runtime().user();
}

world::world(runtime& rt, store& st, world_options options)
    : world(rt.core_ptr(), st, options) {}

world::world(std::shared_ptr<runtime_core> rt, store& st, world_options options)
    : core_(std::make_shared<world_core>(std::move(rt), st, options)) {}

world& world::operator=(world&& other) noexcept {
  if (this != &other) {
    if (core_) core_->abandon();
    core_ = std::move(other.core_);
  }
  return *this;
}

world::~world() {
  if (core_) core_->abandon();
}

task<class failure> world::broken() const {
  const auto core = core_;
  co_await core->over().wait();
  co_return core->first_failure();
}

task<void> world::drained() const {
  const auto core = core_;
  co_await core->drained().wait();
}

task<void> world::leave() {
  const auto core = core_;
  core->begin_leaving();
  co_await core->drained().wait();
  if (core->state() == world_state::broken) throw world_error(core->first_failure());
}

void world::fail(std::string reason) {
  core_->break_with(core_->describe_failure(cause::broken_by_user, rank(),
                                            operation_kind::none, std::move(reason)));
}

task<world> world::reform() {
  const auto core = core_;
  core->break_with(core->describe_failure(cause::abandoned, core->options().rank,
                                          operation_kind::none, "it is formed again"));
  co_await core->drained().wait();
  world next(core->runtime_ptr(), core->rendezvous(), core->options());
  co_await next;
  co_return std::move(next);
}

world_operation<message_info> world::arrival(from peer, source_position where) {
  operation_request r(*core_, operation_kind::arrival, peer.rank(), {}, where);
  r.takes_fresh_lanes = true;
  return world_operation<message_info>(std::move(r));
}

world_operation<message_info> world::arrival(from peer, lane on, source_position where) {
  return world_operation<message_info>(
      operation_request(*core_, operation_kind::arrival, peer.rank(), on, where));
}

world_operation<void> world::barrier(source_position where) {
  return world_operation<void>(
      operation_request(*core_, operation_kind::barrier, no_rank, {}, where));
}

}  // namespace manyworlds::inline v0
