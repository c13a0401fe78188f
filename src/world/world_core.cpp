#include "world/world_core.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "host/host_backend.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/operation_awaiter.hpp"
#include "world/backend_factory.hpp"
#include "world/formation.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

namespace {

bool is_on_one_host(const world_view& v) {
  return std::all_of(v.members.begin(), v.members.end(), [&](const process_address& m) {
    return m.identity.host == v.members.front().identity.host;
  });
}

host_backend_options host_options_of(const world_options& o, const runtime_options& rt,
                                     const world_view& members) {
  host_backend_options b;
  b.one_host = is_on_one_host(members);
  b.algorithms = rt.algorithms;
  b.stall_limit = o.stall;
  b.collective_log = o.collective_log;
  b.collective_break = o.collective_break;
  return b;
}

}  // namespace

std::unique_ptr<backend> make_host_backend(backend_parts parts) {
  return std::make_unique<host_backend>(parts.home(), parts.events(),
                                        parts.host_options(), parts.options().rank,
                                        parts.take_connections());
}

world_core::world_core(std::shared_ptr<runtime_core> rt, store& st, world_options options,
                       std::optional<succession> inherited)
    : runtime_(std::move(rt)),
      store_(&st),
      gate_(inherited ? nullptr : &st),
      options_(options),
      inherited_(std::move(inherited)),
      instance_(runtime_->next_instance()),
      // A wrong size is refused when the world is awaited; it must not take memory
      // here.
      suspects_(static_cast<std::size_t>(
          std::clamp<rank_t>(options.size, 0, world_view::largest_size))) {}

world_core::~world_core() = default;

// --- any thread

bool world_core::is_suspect(rank_t rank) const noexcept {
  return rank >= 0 && static_cast<std::size_t>(rank) < suspects_.size() &&
         suspects_[static_cast<std::size_t>(rank)].load(std::memory_order_relaxed);
}

duration world_core::silence_of(rank_t rank) const noexcept {
  if (rank < 0 || rank >= view_.size() || rank == options_.rank) return duration::zero();
  MW_ASSERT(links_.size() == view_.members.size(), "a formed world has a link by rank");
  const auto& l = links_[static_cast<std::size_t>(rank)];
  return l ? runtime_->service().now() - l->last_heard() : duration::zero();
}

failure world_core::first_failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

failure world_core::describe_failure(enum cause why, rank_t rank, operation_kind in,
                                     std::string detail) const {
  failure f(why, std::move(detail));
  f.world = options_.name;
  f.epoch = epoch();
  f.world_instance = instance_;
  f.rank = rank;
  f.operation = in;
  // The view is written once, before the epoch is.
  if (f.epoch != 0 && rank >= 0 && rank < view_.size()) {
    f.peer = view_.member(rank).identity;
    const auto& l = links_[static_cast<std::size_t>(rank)];
    if (l && rank != options_.rank)
      f.noticed_after = runtime_->service().now() - l->last_heard();
  }
  return f;
}

bool world_core::on_reactor(step& s) noexcept {
  // The reactors of a runtime that has ended are not turned: the step would never
  // release this object.
  if (runtime_->has_ended()) return false;
  MW_ASSERT(!s.keeps, "a step is queued once at a time");
  s.keeps = shared_from_this();
  if (runtime_->user().try_execute(s)) return true;
  s.keeps.reset();
  return false;
}
void world_core::on_service(step& s) noexcept {
  if (runtime_->has_ended()) return;
  MW_ASSERT(!s.keeps, "a step is queued once at a time");
  s.keeps = shared_from_this();
  runtime_->service().execute(s);
}

void world_core::enter(world_state next) noexcept {
  MW_ASSERT(may_follow(state(), next), "a world changes its state by an allowed step");
  state_.store(next, std::memory_order_release);
}

// --- forming

void world_core::begin_forming() {
  if (const std::string wrong = validate(options_); !wrong.empty()) {
    break_with(
        describe_failure(cause::invalid_argument, no_rank, operation_kind::form, wrong));
    return;
  }
  if (runtime_->is_forked_child()) {
    break_with(
        describe_failure(cause::forked, no_rank, operation_kind::form,
                         "a runtime cannot be used in a forked child: make another"));
    return;
  }
  if (runtime_->refuses_worlds()) {
    break_with(describe_failure(cause::runtime_stopped, no_rank, operation_kind::form,
                                "the runtime is stopping"));
    return;
  }
  if (asked_to_form_.exchange(true)) return;
  // List it before anything is begun, then look at the flag again: a runtime that ends
  // first refuses worlds, then waits for those that are listed.
  const auto twin = runtime_->worlds().add(shared_from_this());
  if (twin) {
    const rank_t other = twin->options().rank;
    break_with(describe_failure(
        cause::invalid_argument, other, operation_kind::form,
        other == options_.rank
            ? fmt::format("this runtime has a live handle on rank {} already", other)
            : fmt::format("this runtime is rank {} of that world already, and cannot be "
                          "rank {} too: another runtime can",
                          other, options_.rank)));
    return;
  }
  if (runtime_->refuses_worlds()) {
    break_with(describe_failure(cause::runtime_stopped, no_rank, operation_kind::form,
                                "the runtime is stopping"));
  }
  {
    // Both under the mutex, so that the steps of a break are queued behind the forming.
    const std::lock_guard lock(mutex_);
    if (state() == world_state::described) {
      enter(world_state::forming);
      MW_ASSERT(!form_step_.keeps, "a world begins to form once");
      form_step_.keeps = shared_from_this();
      runtime_->service().post(form_step_);
      return;
    }
  }
  // Broken or left meanwhile, with nothing begun.
  runtime_->worlds().remove(*this);
}

void world_core::begin_inheriting() {
  MW_ASSERT(inherited_, "only a world of survivors inherits");
  begin_forming();
  // Messages about it may follow right behind the proposal: the queued step would run
  // after them.
  form();
}

void world_core::form() noexcept {
  MW_ASSERT(runtime_->service().is_current(), "a world forms on the service reactor");
  // Broken on this thread meanwhile: the announcement has overtaken this step.
  if (state() != world_state::forming || formation_ || epoch() != 0) return;
  forming_since_ = runtime_->service().now();
  formation_ = std::make_unique<formation>(*this);
  auto forming = [](std::shared_ptr<world_core> self) -> task<void> {
    co_await self->formation_->run();
    self->formation_ = nullptr;
    if (self->unregistered_) self->tell_drained();
  };
  runtime_->peers().spawn(forming(shared_from_this()));
}

void world_core::take_formed(formed_parts parts) {
  MW_ASSERT(runtime_->service().is_current(), "a formation ends on the service reactor");
  MW_ASSERT(view_.members.empty() && epoch() == 0, "a world is formed once");
  MW_ASSERT(parts.view.epoch != 0, "an epoch that was formed is above 0");
  MW_ASSERT(parts.view.size() == options_.size &&
                parts.links.size() == parts.view.members.size() &&
                parts.channels.size() == parts.links.size(),
            "a formation has a member, a link and a channel by rank");
  MW_ASSERT(parts.view.member(options_.rank).id == runtime_->self().id,
            "this process has its rank in the view");
  // The store of the epoch releases them: from then on any thread may read the view and
  // the links.
  view_ = parts.view;
  for (link_hold& hold : parts.links) {
    links_.push_back(hold.get());
    holds_.push_back(std::move(hold));
  }
  has_left_.resize(view_.members.size());
  for (const data_channel& c : parts.channels) over_memory_.push_back(c.has_slot());
  parts_ = std::move(parts);
  committed_at_ = runtime_->service().now();
  epoch_.store(view_.epoch, std::memory_order_release);
  runtime_->worlds().note_formed(shared_from_this());
  // A member that died since it reported ready is noticed here or by its link's end.
  for (rank_t r = 0; r < view_.size(); ++r) {
    const auto& l = links_[static_cast<std::size_t>(r)];
    MW_ASSERT(r == options_.rank || l, "a formed world has a link to each other member");
    if (r != options_.rank && !l->is_up())
      link_lost(*l, cause::peer_died, "died while forming");
  }
  if (state() == world_state::broken) {
    // Broken between the commit and here: the announcement found no links to tell.
    parts_ = formed_parts();
    tell_members();
    return;
  }
  on_reactor(up_step_);
}

std::unique_ptr<backend> world_core::make_backend() {
  auto connections = std::exchange(parts_.channels, {});
  MW_ASSERT(connections.size() == view_.members.size(),
            "a backend gets its connections once, by rank");
  const host_backend_options host = host_options_of(options_, runtime_->options(), view_);
  if (options_.backend == backend_kind::nccl) {
    device_backend_parts parts(runtime_->user(), *this);
    parts.name = options_.name;
    parts.epoch = epoch();
    parts.rank = options_.rank;
    parts.host = host;
    parts.on_device = options_.on_device;
    parts.connections = std::move(connections);
    parts.device = std::move(device_);
    return runtime_->devices().make_backend(std::move(parts));
  }
  backend_parts parts(runtime_->user(), *this, options_, host, std::move(connections));
  backend_factory* const chosen = runtime_->options().backends;
  return chosen ? chosen->make_backend(std::move(parts))
                : make_host_backend(std::move(parts));
}

void world_core::go_up() noexcept {
  MW_ASSERT(runtime_->user().is_current(), "a world goes up on its reactor");
  // Broken from this thread meanwhile: the tear-down has overtaken this step.
  if (state() == world_state::broken) {
    parts_ = formed_parts();
    return;
  }
  MW_ASSERT(!backend_ && epoch() != 0, "a world goes up once, after it was formed");
  left_.resize(view_.members.size());
  try {
    backend_ = make_backend();
  } catch (const std::exception& e) {
    break_with(
        describe_failure(cause::out_of_resources, options_.rank, operation_kind::form,
                         std::string("its backend could not be made: ") + e.what()));
    return;
  }
  bool is_up = false;
  channel_waiters told;
  {
    const std::lock_guard lock(mutex_);
    is_up = state() == world_state::forming;
    if (is_up) {
      enter(world_state::up);
      tell_event(told, world_event_kind::formed, options_.rank);
    }
  }
  told.resume_all();
  // Broken meanwhile: the tear-down is queued behind this step and finds the backend.
  if (!is_up) return;
  tally_.note_up(runtime_->user().now());
  runtime_->log(log_level::info,
                fmt::format("{}@{} is up: rank {} of {}", options_.name.view(), epoch(),
                            options_.rank, options_.size));
  decided_.set();
}

}  // namespace manyworlds::inline v0::detail
