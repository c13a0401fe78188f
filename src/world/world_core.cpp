#include "world/world_core.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "duration_text.hpp"
#include "host/host_backend.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/operation_awaiter.hpp"
#include "world/backend_factory.hpp"
#include "world/formation.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// The reactor has at least this long to bring up a world that was formed at the last
/// moment.
constexpr duration shortest_take = std::chrono::milliseconds(500);

bool is_on_one_host(const world_view& v) {
  return std::all_of(v.members.begin(), v.members.end(), [&](const process_address& m) {
    return m.identity.host == v.members.front().identity.host;
  });
}

host_backend_options host_options_of(const world_options& o, const runtime_options& rt,
                                     const world_view& members) {
  host_backend_options b;
  b.one_host = is_on_one_host(members);
  b.world_id = members.id;
  b.algorithms = rt.algorithms;
  b.stall_limit = o.stall;
  b.collective_log = o.collective_log;
  b.collective_break = o.collective_break;
  return b;
}

}  // namespace

std::unique_ptr<backend> make_host_backend(backend_parts parts) {
  return std::make_unique<host_backend>(parts.home(), parts.listener(),
                                        parts.host_options(), parts.options().rank,
                                        parts.take_connections());
}

world_core::world_core(std::shared_ptr<runtime_core> rt, store& st, world_options options,
                       std::optional<successor_view> inherited)
    : runtime_(std::move(rt)),
      store_(&st),
      gate_(inherited ? nullptr : &st),
      options_(options),
      inherited_(std::move(inherited)),
      instance_(runtime_->next_instance()),
      life_(options_.name, options_.rank, runtime_->events()),
      members_(*this),
      pending_(runtime_->history()) {}

world_core::~world_core() = default;

failure world_core::describe_failure(enum cause why, rank_t rank, operation_kind in,
                                     std::string detail) const {
  failure f(why, std::move(detail));
  f.world = options_.name;
  f.epoch = epoch();
  f.world_instance = instance_;
  f.rank = rank;
  f.operation = in;
  // The view is written once, before the epoch is.
  if (f.epoch != 0 && rank >= 0 && rank < view().size()) {
    f.peer = view().member(rank).identity;
    f.noticed_after = members_.silence_of(rank);
  }
  return f;
}

bool world_core::on_reactor(keeping_work& w) noexcept {
  // The reactors of a runtime that has ended are not turned: the work would never
  // release this object.
  if (runtime_->has_ended()) return false;
  w.keep(shared_from_this());
  if (runtime_->user().try_execute(w)) return true;
  w.let_go();
  return false;
}

void world_core::on_service(keeping_work& w) noexcept {
  if (runtime_->has_ended()) return;
  w.keep(shared_from_this());
  runtime_->service().execute(w);
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
  const bool begins = life_.begin_forming([this] {
    form_step_.keep(shared_from_this());
    runtime_->service().post(form_step_);
  });
  if (begins) return;
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
  const std::uint64_t epoch = parts.view.epoch;
  members_.take_formed(parts.view, std::move(parts.links), parts.channels);
  channels_ = std::move(parts.channels);
  committed_at_ = runtime_->service().now();
  // From now on any thread may read the view and the links.
  life_.note_formed(epoch);
  runtime_->worlds().note_formed(shared_from_this());
  // A member that died since it reported ready is noticed here or by its link's end.
  members_.break_for_the_dead();
  if (state() == world_state::broken) {
    // Broken between the commit and here: the announcement found no links to tell.
    channels_.clear();
    tell_members();
    return;
  }
  on_reactor(up_step_);
}

std::unique_ptr<backend> world_core::make_backend() {
  auto connections = std::exchange(channels_, {});
  MW_ASSERT(connections.size() == view().members.size(),
            "a backend gets its connections once, by rank");
  const host_backend_options host =
      host_options_of(options_, runtime_->options(), view());
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
    channels_.clear();
    return;
  }
  MW_ASSERT(!backend_ && epoch() != 0, "a world goes up once, after it was formed");
  try {
    backend_ = make_backend();
    runtime_->history().name_world(instance_, options_.name, epoch());
  } catch (const std::exception& e) {
    break_with(
        describe_failure(cause::out_of_resources, options_.rank, operation_kind::form,
                         std::string("its backend could not be made: ") + e.what()));
    return;
  }
  // Broken meanwhile: the tear-down is queued behind this step and finds the backend.
  if (!life_.step(world_state::forming, world_state::up)) return;
  tally_.note_up(runtime_->user().now());
  runtime_->log(log_level::info,
                fmt::format("{}@{} is up: rank {} of {}", options_.name.view(), epoch(),
                            options_.rank, options_.size));
  decided().set();
}

time_point world_core::examine_silence(time_point now) noexcept {
  const world_state s = state();
  // Formed, and about to be up.
  if (s == world_state::forming && epoch() != 0) {
    const time_point up_by = std::max(later(forming_since_, options_.form),
                                      later(committed_at_, shortest_take));
    if (now >= up_by) break_as_not_turned(now);
    return now;
  }
  if (s != world_state::up && s != world_state::closing) return time_point::max();
  return members_.examine_silence(now);
}

// The thread that turns the reactor again finds the world broken; the others do not
// wait for that. Law 8 protects worlds that are up from a user's thread; this one never
// was.
void world_core::break_as_not_turned(time_point now) noexcept {
  break_with(describe_failure(
      cause::not_turned, options_.rank, operation_kind::form,
      fmt::format(
          "all members were connected {} ago, but the reactor of this runtime has "
          "not been turned since, and its time to form, {}, is up: a task blocks "
          "it, or run(), start() or poll() is missing",
          duration_text(now - committed_at_), duration_text(options_.form))));
}

// --- operations

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
  if (op.targets && !backend_->sends_to_many()) [[unlikely]] {
    op.fail(cause::unsupported,
            "the backend of this world sends to one member at a time: send to each");
    return;
  }
  MW_ASSERT(runtime_->user().is_current(), "an operation starts on the world's reactor");
  op.started = runtime_->user().recently();
  if (is_collective(op.kind)) ++collectives_begun_;
  pending_.add(op);
  backend_->start(op);
}

bool world_core::try_at_once(operation_awaiter& op) noexcept {
  reactor& user = runtime_->user();
  if (!user.is_current() || state() != world_state::up || op.device) return false;
  if (!user.may_go_on_at_once() || runtime_->is_forked_child()) return false;
  MW_ASSERT(backend_, "a world that is up has its backend");
  if (!backend_->try_at_once(op)) return false;
  user.count_at_once(op.bytes_moved);
  return true;
}

void world_core::remove_pending(operation_awaiter& op, enum cause ended_by) noexcept {
  pending_.remove(op, instance_, ended_by, runtime_->user().recently());
}

void world_core::break_for_the_end_of(const operation& op) noexcept {
  MW_ASSERT(is_collective(op.kind), "only a collective cannot be taken back");
  break_with(describe_failure(
      cause::runtime_stopped, options_.rank, op.kind,
      "its task was cancelled by the end of the runtime, and the others wait for it"));
}

void world_core::break_for_the_deadline_of(const operation& op) noexcept {
  MW_ASSERT(is_collective(op.kind), "other operations are withdrawn at their deadline");
  std::string text = fmt::format("its deadline passed at rank {}", options_.rank);
  rank_t culprit = no_rank;
  // What is under way in host memory says nothing of an operation on a device.
  const auto status = backend_ && !op.device ? backend_->collective() : std::nullopt;
  if (status && !status->is_known) {
    text += ", and the others have not said yet whether they have entered it";
  } else if (status && status->absent.empty()) {
    text += ", though all members have entered it: see dump()";
  } else if (status) {
    culprit = status->absent.front();
    text += ": " + waits_for(status->kind, status->number, status->absent);
  }
  break_with(describe_failure(cause::overdue, culprit, op.kind, std::move(text)));
}

void world_core::break_for_cancelled_collectives() noexcept {
  for (const operation* op = pending_.first(); op; op = op->next_pending) {
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

// --- what the backend tells

void world_core::connection_ended(rank_t peer, int error) noexcept {
  members_.note_connection_end(peer, error);
}

void world_core::must_break(rank_t peer, enum cause why, std::string detail) noexcept {
  // A peer that beats, with a reactor that neither turns nor is parked, is blocked in
  // user code: it lives and breaks no world (law 8). The backend asks again. One that
  // does not beat is silent; that breaks the world elsewhere.
  if (why == cause::stalled && members_.is_blocked(peer)) return;
  break_with(describe_failure(why, peer, operation_kind::none, std::move(detail)));
}

void world_core::heard(rank_t peer) noexcept { members_.note_heard(peer); }

void world_core::log(log_level level, std::string line) noexcept {
  runtime_->log(level, fmt::format("{}@{}: {}", options_.name.view(), epoch(), line));
}

}  // namespace manyworlds::inline v0::detail
