#include "manyworlds/world/world_core.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/host/host_backend.hpp"
#include "manyworlds/world/backend_factory.hpp"
#include "manyworlds/world/formation.hpp"
#include "manyworlds/world/operation_awaiter.hpp"
#include "manyworlds/world/runtime_core.hpp"

namespace manyworlds::inline v0 {

namespace {
/// A process that dies closes its connections one after the other, and one that breaks a
/// world says why on its link: a data connection that ended is judged only after that had
/// time to arrive.
constexpr duration judgement_pause = std::chrono::milliseconds(50);
}  // namespace

std::unique_ptr<backend> make_host_backend(backend_parts parts) {
  const world_options& o = parts.options();
  host_backend_options b;
  b.stall_limit = o.stall;
  b.barrier_remark = o.collective_log;
  b.barrier_limit = o.collective_break;
  return std::make_unique<host_backend>(parts.home(), parts.events(), b, o.rank,
                                        parts.take_connections());
}

std::string_view name_of(world_state s) noexcept {
  switch (s) {
    case world_state::described:
      return "described";
    case world_state::forming:
      return "forming";
    case world_state::up:
      return "up";
    case world_state::closing:
      return "closing";
    case world_state::closed:
      return "closed";
    case world_state::broken:
      break;
  }
  return "broken";
}

world_core::world_core(std::shared_ptr<runtime_core> rt, store& st, world_options options)
    : runtime_(std::move(rt)),
      store_(&st),
      gate_(st),
      options_(options),
      instance_(runtime_->next_instance()),
      // A wrong size is named when the world is awaited; it must not ask for memory here.
      suspects_(static_cast<std::size_t>(
          std::clamp<rank_t>(options.size, 0, world_view::largest_size))) {}

world_core::~world_core() = default;

// --- any thread
// ---------------------------------------------------------------------------------

bool world_core::is_suspect(rank_t rank) const noexcept {
  return rank >= 0 && static_cast<std::size_t>(rank) < suspects_.size() &&
         suspects_[static_cast<std::size_t>(rank)].load(std::memory_order_relaxed);
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
  // Nothing turns the reactors of a runtime that has ended: the step would keep this for
  // ever.
  if (runtime_->has_ended()) return false;
  s.keeps = shared_from_this();
  if (runtime_->user().try_execute(s)) return true;
  s.keeps.reset();
  return false;
}
void world_core::on_service(step& s) noexcept {
  if (runtime_->has_ended()) return;
  s.keeps = shared_from_this();
  runtime_->service().execute(s);
}

void world_core::begin_forming() {
  if (const std::string wrong = objection_to(options_); !wrong.empty()) {
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
  // Listed before anything is begun, and then looked again: a runtime that ends first
  // refuses worlds, then waits for those that are listed.
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
    // Together, so that what a break brings about is queued behind the forming.
    const std::lock_guard lock(mutex_);
    if (state() == world_state::described) {
      state_.store(world_state::forming, std::memory_order_release);
      form_step_.keeps = shared_from_this();
      runtime_->service().post(form_step_);
      return;
    }
  }
  // Broken or left meanwhile, with nothing begun.
  runtime_->worlds().remove(*this);
}

bool world_core::break_with(failure f, rank_t reported_by) {
  bool had_begun = false;
  {
    const std::lock_guard lock(mutex_);
    const world_state before = state();
    if (before == world_state::broken || before == world_state::closed) return false;
    had_begun = before != world_state::described;
    failure_ = std::move(f);
    reported_by_ = reported_by;
    state_.store(world_state::broken, std::memory_order_release);
  }
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

// --- forming
// ------------------------------------------------------------------------------------

void world_core::form() noexcept {
  // Broken on this thread meanwhile: the announcement has overtaken this step.
  if (state() != world_state::forming) return;
  formation_ = std::make_unique<formation>(*this);
  auto forming = [](std::shared_ptr<world_core> self) -> task<void> {
    co_await self->formation_->run();
    self->formation_ = nullptr;
    if (self->unregistered_) self->tell_drained();
  };
  runtime_->peers().spawn(forming(shared_from_this()));
}

void world_core::take_formed(formed_parts parts) {
  // Released by the epoch: from now on any thread may read the view and the links.
  view_ = parts.view;
  for (link_hold& hold : parts.links) {
    links_.push_back(hold.get());
    holds_.push_back(std::move(hold));
  }
  has_left_.resize(view_.members.size());
  for (const data_channel& c : parts.channels) over_memory_.push_back(c.has_slot());
  parts_ = std::move(parts);
  epoch_.store(view_.epoch, std::memory_order_release);
  // A member that died since it reported ready is noticed here or by its link's end.
  for (rank_t r = 0; r < view_.size(); ++r) {
    const auto& l = links_[static_cast<std::size_t>(r)];
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

void world_core::go_up() noexcept {
  // Broken from this thread meanwhile: the tear-down has overtaken this step.
  if (state() == world_state::broken) {
    parts_ = formed_parts();
    return;
  }
  left_.resize(view_.members.size());
  backend_parts parts(runtime_->user(), *this, options_,
                      std::exchange(parts_.channels, {}));
  backend_factory* const chosen = runtime_->options().backends;
  try {
    backend_ = chosen ? chosen->make_backend(std::move(parts))
                      : make_host_backend(std::move(parts));
  } catch (const std::exception& e) {
    break_with(
        describe_failure(cause::out_of_resources, options_.rank, operation_kind::form,
                         std::string("its backend could not be made: ") + e.what()));
    return;
  }
  bool is_up = false;
  {
    const std::lock_guard lock(mutex_);
    is_up = state() == world_state::forming;
    if (is_up) state_.store(world_state::up, std::memory_order_release);
  }
  // Broken meanwhile: the tear-down is queued behind this step and finds the backend.
  if (!is_up) return;
  tally_.note_up(runtime_->user().now());
  runtime_->log(log_level::info,
                fmt::format("{}@{} is up: rank {} of {}", options_.name.view(), epoch(),
                            options_.rank, options_.size));
  decided_.set();
}

// --- breaking
// -----------------------------------------------------------------------------------

void world_core::tear_down() noexcept {
  decided_.set();
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
    op.end(operation_end::failed);
  }
}

void world_core::announce() noexcept {
  if (formation_) formation_->stop();
  tell_members();
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

// --- notices from the service
// -------------------------------------------------------------------

bool world_core::has_left(rank_t rank) const noexcept {
  return has_left_[static_cast<std::size_t>(rank)];
}

void world_core::link_lost(const link& l, enum cause why,
                           const std::string& detail) noexcept {
  for (rank_t r = 0; r < static_cast<rank_t>(links_.size()); ++r) {
    if (links_[static_cast<std::size_t>(r)].get() != &l || has_left(r)) continue;
    break_with(describe_failure(why, r, operation_kind::none, detail));
  }
}

void world_core::examine_silence(time_point now) noexcept {
  const world_state s = state();
  if (s != world_state::up && s != world_state::closing) return;
  for (rank_t r = 0; r < static_cast<rank_t>(links_.size()); ++r) {
    if (r == options_.rank || has_left(r)) continue;
    const duration silence = now - links_[static_cast<std::size_t>(r)]->last_heard();
    auto& suspect = suspects_[static_cast<std::size_t>(r)];
    const bool is_now = silence >= options_.suspect_after;
    if (suspect.exchange(is_now, std::memory_order_relaxed) != is_now) {
      if (is_now) tally_.note_suspicion();
      runtime_->log(
          is_now ? log_level::warning : log_level::info,
          fmt::format(
              "{}@{}: rank {} (pid {}) {}", options_.name.view(), epoch(), r,
              view_.member(r).identity.pid,
              is_now ? "is suspect: not heard of for " +
                           fmt::format("{:.3g} s",
                                       std::chrono::duration<double>(silence).count())
                     : "is heard again"));
    }
    if (silence >= options_.broken_after) {
      break_with(describe_failure(cause::silent_peer, r, operation_kind::none, {}));
    }
  }
}

void world_core::note_departures() noexcept {
  std::vector<rank_t> departed;
  std::vector<std::pair<rank_t, int>> ended;
  {
    const std::lock_guard lock(mutex_);
    departed.swap(departed_);
    ended.swap(ended_connections_);
    departures_queued_ = false;
  }
  for (const rank_t r : departed) {
    has_left_[static_cast<std::size_t>(r)] = true;
    suspects_[static_cast<std::size_t>(r)].store(false, std::memory_order_relaxed);
  }
  auto judge = [](std::shared_ptr<world_core> self, rank_t r, int error) -> task<void> {
    co_await sleep_for(judgement_pause);
    // If this thread was kept waiting itself, what came meanwhile is read first.
    co_await sleep_for(std::chrono::milliseconds(1));
    if (self->has_left(r)) co_return;
    self->break_with(self->describe_failure(
        cause::connection_lost, r, operation_kind::none,
        error ? std::strerror(error) : "the peer closed its data connection"));
  };
  for (const auto& [r, error] : ended) {
    runtime_->peers().spawn(judge(shared_from_this(), r, error));
  }
}

// --- the backend's events, on the reactor
// -------------------------------------------------------

void world_core::tell_service_of(rank_t departed,
                                 std::optional<int> connection_error) noexcept {
  bool queue = false;
  {
    const std::lock_guard lock(mutex_);
    if (connection_error) {
      ended_connections_.emplace_back(departed, *connection_error);
    } else {
      departed_.push_back(departed);
    }
    queue = !std::exchange(departures_queued_, true);
  }
  if (queue) on_service(departures_step_);
}

void world_core::connection_ended(rank_t peer, int error) noexcept {
  tell_service_of(peer, error);
}

void world_core::must_break(rank_t peer, enum cause why, std::string detail) noexcept {
  // A peer that beats but whose reactor neither turns nor is parked is blocked in user
  // code: alive, and no world's end (law 8). The backend asks again. One that does not
  // beat is silent, which breaks the world without us.
  if (why == cause::stalled && peer >= 0 && peer < view_.size()) {
    const link& l = *links_[static_cast<std::size_t>(peer)];
    if (runtime_->user().now() - l.peer_progressed() > 2 * runtime_->options().heartbeat)
      return;
  }
  break_with(describe_failure(why, peer, operation_kind::none, std::move(detail)));
}

void world_core::peer_left(rank_t peer) noexcept {
  left_[static_cast<std::size_t>(peer)] = true;
  // Before the peer is told that we know: it may end right after, and must not seem to
  // have died.
  tell_service_of(peer, std::nullopt);
  if (!left_by_all()) return;
  {
    const std::lock_guard lock(mutex_);
    if (state() != world_state::up) return;
    failure_ = describe_failure(cause::closed, peer, operation_kind::none,
                                "all others have left");
    state_.store(world_state::closed, std::memory_order_release);
  }
  runtime_->log(log_level::info, fmt::format("{}@{} is closed: all others have left",
                                             options_.name.view(), epoch()));
  // Stays registered until its last connection has ended: a runtime that ends waits for
  // that.
  over_.set();
}

bool world_core::left_by_all() const noexcept {
  for (rank_t r = 0; r < view_.size(); ++r) {
    if (r != options_.rank && !left_[static_cast<std::size_t>(r)]) return false;
  }
  return true;
}

void world_core::heard(rank_t peer) noexcept {
  links_[static_cast<std::size_t>(peer)]->note_heard(runtime_->user().now());
}

void world_core::remark(std::string line) noexcept {
  runtime_->log(log_level::warning,
                fmt::format("{}@{}: {}", options_.name.view(), epoch(), line));
}

// --- leaving
// ------------------------------------------------------------------------------------

void world_core::begin_leaving() {
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
  {
    const std::lock_guard lock(mutex_);
    // Broken meanwhile: the tear-down does the rest.
    if (state() == world_state::broken) return;
    closed_now = state() == world_state::closing;
    if (closed_now) {
      failure_ =
          describe_failure(cause::closed, options_.rank, operation_kind::leave, {});
      state_.store(world_state::closed, std::memory_order_release);
    }
  }
  end_pending();
  backend_ = nullptr;
  if (closed_now) {
    runtime_->log(log_level::info,
                  fmt::format("{}@{} is closed: left", options_.name.view(), epoch()));
  }
  over_.set();
  on_service(unregister_step_);
}

// --- operations, on the reactor
// -----------------------------------------------------------------

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
    op.end(operation_end::failed);
    return;
  }
  if (runtime_->is_forked_child()) {
    op.fail(cause::forked, "a world cannot be used in a forked child");
    return;
  }
  op.started = runtime_->user().now();
  {
    const std::lock_guard lock(runtime_->ledger().mutex());
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
  operation_record record;
  record.world = options_.name;
  record.epoch = epoch();
  record.kind = op.kind;
  record.peer = op.peer;
  record.lane = op.on.number();
  record.bytes = op.bytes_moved;
  record.begun = op.begun;
  record.started = op.started;
  record.ended = runtime_->user().now();
  record.failed_with = ended_by;
  record.file = op.where.file_name();
  record.line = op.where.line();
  const std::lock_guard lock(runtime_->ledger().mutex());
  (op.previous_pending ? op.previous_pending->next_pending : pending_) = op.next_pending;
  if (op.next_pending) op.next_pending->previous_pending = op.previous_pending;
  runtime_->ledger().remember(record);
}

bool world_core::withdraw(operation_awaiter& op) noexcept {
  // Without a backend, or broken: the end is under way.
  if (!backend_ || state() == world_state::broken) return false;
  return backend_->withdraw(op);
}

}  // namespace manyworlds::inline v0
