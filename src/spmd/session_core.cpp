#include "spmd/session_core.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <stdexcept>
#include <utility>

#include "duration_text.hpp"
#include "exception_text.hpp"
#include "manyworlds/coro/when_all.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "spmd/local_places.hpp"
#include "spmd/mesh_name.hpp"
#include "spmd/register_file.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

using namespace std::chrono_literals;

using command_wire::command_flag;
using command_wire::command_head;
using command_wire::command_kind;

// A process that has died is reaped within a millisecond of its worlds' breaking: the
// error of its calls waits for what ended it, on a busy machine this long.
constexpr duration patience_for_reason = 100ms;
// Errors of issued calls that wait for a sync.
constexpr std::size_t most_untold = 1024;
// How long the release of a register waits for a command that takes it along.
constexpr duration patience_for_releases = 1ms;
// The time that a worker has to end when its session does.
constexpr duration patience_at_end = 1s;

// --- its life ------------------------------------------------------------

session_core::session_core(runtime& rt, std::unique_ptr<worker_source> source,
                           int workers, const session_options& limits)
    : runtime_(rt),
      source_(std::move(source)),
      limits_(limits),
      name_(fmt::format("{}.{:08x}", limits.name.view(),
                        static_cast<std::uint32_t>(access::core(rt).random_word()))),
      registers_(*this) {
  for (int id = 0; id < workers; ++id)
    links_.push_back(std::make_unique<worker_link>(*this, id));
  source_->name_session(name_, workers);
}

session_core::~session_core() {
  registers_.forget_session();
  MW_ASSERT(is_over_ || !has_begun_, "it ends before it goes");
}

executor& session_core::home() noexcept { return runtime_.home(); }

worker_link& session_core::link_of(int worker) const noexcept {
  return *links_[static_cast<std::size_t>(worker)];
}

void session_core::check_reactor() const {
  if (runtime_.home().is_current()) return;
  throw world_error(failure(cause::invalid_argument,
                            "a session is used on the reactor of its runtime"));
}

std::vector<int> session_core::all_workers() const {
  std::vector<int> all(links_.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
  return all;
}

std::vector<session_worker> session_core::describe() const {
  std::vector<session_worker> all;
  for (const auto& link : links_) {
    all.push_back({link->id(), link->incarnation(), link->state(),
                   link->state() == worker_state::lost ? 0 : source_->pid(link->id()),
                   link->loss(), link->stuck_in()});
  }
  return all;
}

void session_core::check_workers(std::span<const int> workers) const {
  if (workers.empty()) throw std::invalid_argument("session: a mesh of no workers");
  for (std::size_t i = 0; i < workers.size(); ++i) {
    const int id = workers[i];
    if (id < 0 || static_cast<std::size_t>(id) >= links_.size()) {
      throw std::invalid_argument(
          fmt::format("session: there is no worker {}: it has {}", id, links_.size()));
    }
    if (std::ranges::count(workers, id) > 1)
      throw std::invalid_argument(fmt::format("session: worker {} stands twice", id));
  }
}

task<void> session_core::begin(std::shared_ptr<session_core> self) {
  self->check_reactor();
  self->watch_.show();
  (void)self->runtime_.start(hold(self));
  self->has_begun_ = true;
  std::string absent;
  for (const auto& link : self->links_) {
    co_await link->decided();
    if (link->state() == worker_state::ready) continue;
    absent += fmt::format("{}worker {}: {}", absent.empty() ? "" : "; ", link->id(),
                          link->loss());
  }
  if (absent.empty()) {
    self->has_started_ = true;
    // One may be gone again already.
    for (const auto& link : self->links_) {
      if (link->state() == worker_state::lost) self->replacer_.note_lost(link->id());
    }
    co_return;
  }
  failure why(cause::not_joined, absent);
  why.world = world_name(self->name_);
  why.operation = operation_kind::form;
  throw world_error(std::move(why));
}

task<void> session_core::hold(std::shared_ptr<session_core> self) {
  const struct ending {
    session_core& of;
    ~ending() { of.over_.set(); }
  } at_last{*self};
  event all_ended;
  auto live = [&]() -> task<void> {
    co_await self->run();
    all_ended.set();
  };
  co_await when_all(live(), self->source_->run(all_ended));
}

task<void> session_core::run() {
  // Also when its runtime stops, and this is cut: calls are waited for until then.
  struct ending {
    session_core& self;
    ~ending() { self.end(cause::runtime_stopped, "its runtime has stopped"); }
  } const at_last{*this};
  const auto body = [this](scope& s) -> task<void> {
    lives_ = &s;
    s.spawn(watch_silence());
    s.spawn(watch_.run());
    for (const auto& link : links_) s.spawn(live(*link));
    co_await closing_;
    auto dropped = [this]() -> task<void> { co_await dropped_; };
    co_await when_any(end_workers(), dropped());
    s.cancel();
  };
  std::string why = "the session has ended";
  try {
    co_await scope::run(body);
  } catch (...) {
    why = handled_exception_text();
  }
  end(cause::closed, why);
  std::vector<task<void>> endings;
  for (const auto& link : links_) {
    if (link->state() != worker_state::lost) link->lose({}, why);
    endings.push_back(source_->end(link->id(), patience_at_end));
  }
  co_await when_all(std::move(endings));
}

/// Nothing is waited for from now on. Called once or twice; the first one counts.
void session_core::end(cause why, const std::string& text) noexcept {
  if (std::exchange(is_over_, true)) return;
  lives_ = nullptr;
  timer_queue& timers = home().timers();
  timers.disarm(late_release_);
  for (const auto& call : std::exchange(awaiting_loss_, {})) {
    timers.disarm(call->patience);
    call->awaits_loss = false;
    tell_of_failure(*call);
    examine(*call);
  }
  for (const auto& [id, call] : std::exchange(open_, {})) {
    timers.disarm(call->grace);
    for (call_part& part : call->parts) {
      if (!part.is_over()) part.state = part_state::lost;
    }
    call->is_settled = true;
    if (!call->why) call->why.emplace(why, text);
    examine(*call);
  }
  // Who waits for a replacement finds that there will be none.
  for (const auto& link : links_) link->decided().set();
  replacer_.end();
  watch_.hide();
  tell_untold();
  events_.close();
  registers_.let_locals_go();
}

void session_core::spawn(task<void> child) {
  MW_ASSERT(lives_ != nullptr, "tasks of a session start while it lives");
  lives_->spawn(std::move(child));
}

void session_core::tell(const session_event& e) noexcept {
  channel_waiters told;
  events_.tell(e, told);
  told.resume_all();
}

void session_core::alert() {
  check_reactor();
  command_head head{};
  head.kind = command_kind::alert;
  for (const auto& link : links_) {
    if (link->state() == worker_state::ready) link->tell(head);
  }
}

/// Tells which workers are silent, as their control worlds notice it, or those of their
/// nodes.
task<void> session_core::watch_silence() {
  const world_events told(access::core(runtime_).events().subscribe(64 + links_.size()));
  for (;;) {
    const world_event e = co_await told.next();
    const bool is_suspect = e.kind == world_event_kind::suspect;
    if (!is_suspect && e.kind != world_event_kind::recovered) continue;
    for (const auto& link : links_) {
      if (link->is_meant_by(e)) link->note_silence(is_suspect);
    }
  }
}

void session_core::tell_untold() noexcept {
  if (untold_.empty()) return;
  access::core(runtime_).log(
      log_level::warning,
      fmt::format("session {}: it ends, and {} errors were not asked for, the first of "
                  "them: {}",
                  name_, untold_.size(),
                  exception_text(error_of(*untold_.begin()->second))));
  untold_.clear();
}

/// Lives through the incarnations of one worker.
task<void> session_core::live(worker_link& link) {
  for (std::uint64_t incarnation = 1;; ++incarnation) {
    failure why;
    try {
      co_await link.serve(incarnation);
    } catch (const world_error& e) {
      why = e.failure();
    } catch (...) {
      why = failure(cause::out_of_resources, handled_exception_text());
    }
    std::string how = why.text();
    link.note_leaving();
    try {
      std::string reason =
          co_await within(source_->ended(link.id()), patience_for_reason);
      if (!reason.empty()) how = std::move(reason);
    } catch (const timed_out&) {
      // It lives, silent or cut off: it is killed below.
    }
    lose(link, why, how);
    co_await source_->end(link.id(), 0s);
    co_await link.wanted();
    link.wanted().reset();
  }
}

/// Lets the workers end what was issued to them.
task<void> session_core::end_workers() {
  for (const auto& link : links_) {
    if (link->state() == worker_state::ready) link->close();
  }
  for (const auto& link : links_) {
    while (link->state() == worker_state::ready && !link->is_stuck()) {
      link->decided().reset();
      co_await link->decided();
    }
  }
}

task<void> session_core::close(std::shared_ptr<session_core> self) {
  self->closing_.set();
  co_await self->over_;
}

void session_core::abandon() noexcept {
  closing_.set();
  dropped_.set();
}

/// The meshes of a worker that was replaced have another world from now on.
void session_core::joined(worker_link& link) {
  for (session_mesh& mesh : meshes_.all()) {
    if (!mesh.has(link.id())) continue;
    ++mesh.number;
    auto [head, block] = mesh.description();
    link.push(head, std::move(block));
    for (const int other : mesh.workers) {
      if (other != link.id() && link_of(other).state() == worker_state::ready)
        link_of(other).tell(mesh.next_world());
    }
  }
  // Those that were there when the session began to close are told already.
  if (closing_.is_set()) link.close();
  tell({.kind = session_event_kind::ready,
        .worker = link.id(),
        .incarnation = link.incarnation()});
}

void session_core::lose(worker_link& link, const failure& why, const std::string& how) {
  const std::uint64_t incarnation = link.incarnation();
  link.lose(why, how);
  if (!is_ending()) {
    tell({.kind = session_event_kind::lost,
          .worker = link.id(),
          .incarnation = incarnation,
          .cause = why.cause,
          .text = how});
  }
  std::vector<std::shared_ptr<call_record>> hurt;
  for (const auto& [id, call] : open_) {
    call_part* const part = call->part_of(link.id());
    if (part == nullptr || part->incarnation != incarnation || part->is_over()) continue;
    part->state = part_state::lost;
    hurt.push_back(call);
  }
  for (const auto& call : hurt) {
    // One that another has failed may have it from there.
    if (std::ranges::find(call->told, link.id(), &worker_text::worker) ==
        call->told.end())
      call->told.push_back({link.id(), incarnation, why.cause, how});
    fail(call, loss_of(link));
    if (call->is_over()) settle(call);
  }
  for (const auto& call : std::exchange(awaiting_loss_, {})) {
    if (call->part_of(link.id()) == nullptr) {
      awaiting_loss_.push_back(call);
      continue;
    }
    const std::string name = call->why->call;
    call->why = loss_of(link);
    call->why->world = world_name(name_);
    call->why->operation = operation_kind::call;
    call->why->call = name;
    const auto own = std::ranges::find(call->told, link.id(), &worker_text::worker);
    if (own == call->told.end()) {
      call->told.insert(call->told.begin(), {link.id(), incarnation, why.cause, how});
    } else {
      std::rotate(call->told.begin(), own, own + 1);
    }
    end_awaiting_loss(*call);
  }
  if (has_started_) replacer_.note_lost(link.id());
}

failure session_core::loss_of(const worker_link& link) const {
  const failure& why = link.why_lost();
  failure f(why.cause, fmt::format("worker {}: {}", link.id(), link.loss()));
  f.rank = link.id();
  f.peer = why.peer;
  f.noticed_after = why.noticed_after;
  return f;
}

/// A world that breaks at a worker is often how another one's end is noticed first: the
/// error waits a little for what ended that one.
void session_core::await_loss(const std::shared_ptr<call_record>& call) {
  call->awaits_loss = true;
  awaiting_loss_.push_back(call);
  home().arm(call->patience, later(home().now(), patience_for_reason));
}

void session_core::waited_for_loss(call_record& call) noexcept {
  const bool is_coming = std::ranges::any_of(
      call.parts, [this](const call_part& p) { return link_of(p.worker).is_leaving(); });
  if (!is_coming) return end_awaiting_loss(call);
  home().arm(call.patience, later(home().now(), patience_for_reason));
}

void session_core::end_awaiting_loss(call_record& call) noexcept {
  const auto at =
      std::ranges::find(awaiting_loss_, &call, &std::shared_ptr<call_record>::get);
  std::shared_ptr<call_record> kept;
  if (at != awaiting_loss_.end()) {
    kept = std::move(*at);
    awaiting_loss_.erase(at);
  }
  home().timers().disarm(call.patience);
  call.awaits_loss = false;
  tell_of_failure(call);
  examine(call);
}

void session_core::note_stuck(call_record& call) noexcept {
  std::vector<int> stuck;
  for (const call_part& part : call.parts) {
    worker_link& link = link_of(part.worker);
    if (part.is_over() || part.waits_to_skip || link.state() != worker_state::ready)
      continue;
    stuck.push_back(part.worker);
    link.note_stuck(call);
    access::core(runtime_).log(
        log_level::warning,
        fmt::format(
            "session {}: worker {} is stuck: {} after call {} of {} was ended, it "
            "still runs it",
            name_, part.worker, duration_text(limits_.grace), call.id, call.function));
    tell({.kind = session_event_kind::stuck,
          .worker = part.worker,
          .incarnation = part.incarnation,
          .call = call.id,
          .cause = cause::overdue,
          .text = link.stuck_in()});
    if (limits_.on_stuck != stuck_worker::kill || source_->pid(part.worker) == 0)
      continue;
    lives_->spawn(link.end_by_force());
  }
  if (stuck.empty()) return;
  // The rest goes on: what needs none of these.
  std::vector<std::shared_ptr<call_record>> behind;
  for (const auto& each : open_) {
    const std::shared_ptr<call_record>& other = each.second;
    const bool needs_it = std::ranges::any_of(
        stuck, [&](int worker) { return other->part_of(worker) != nullptr; });
    if (needs_it && other->id > call.id) behind.push_back(other);
  }
  for (const auto& other : behind) {
    failure f(cause::overdue, fmt::format("worker {} is stuck in call {} of {}",
                                          stuck.front(), call.id, call.function));
    f.rank = stuck.front();
    fail(other, std::move(f));
    if (other->is_over()) settle(other);
  }
  let_others_go(call);
}

void session_core::note_freed(const worker_link& link, std::uint64_t call) noexcept {
  tell({.kind = session_event_kind::freed,
        .worker = link.id(),
        .incarnation = link.incarnation(),
        .call = call});
}

/// Lets those go on that have ended the call, although not all have.
void session_core::let_others_go(const call_record& call) {
  command_head head{};
  head.kind = command_kind::resume;
  head.call = call.id;
  for (const call_part& part : call.parts) {
    if (!part.is_over()) continue;
    link_of(part.worker).let_go(call.id);
    if (part.is_held()) link_of(part.worker).tell(head);
  }
}

// --- registers ----------------------------------------------------------------------

void session_core::name_result(const remote_request& request, call_record& call) {
  register_id which = request.into;
  if (which == register_id()) {
    call.result = registers_.name(weak_from_this());
    which = call.result->id;
  }
  call.head.result = which;
  call.head.set(command_flag::fills);
  std::shared_ptr<const kept_call> again = request.again;
  if (request.is_replayable) {
    kept_call kept{call.function, request.types, {}, {}, call.taken};
    const std::span<const std::byte> written = call.values.written();
    kept.written.assign(written.begin(), written.end());
    for (const const_buffer_view& each : call.values.beside()) {
      const auto* const first = static_cast<const std::byte*>(each.data());
      kept.beside.emplace_back(first, first + each.size_bytes());
    }
    again = std::make_shared<const kept_call>(std::move(kept));
  }
  registers_.fill(which, call, std::move(again));
}

std::vector<int> session_core::workers_of(register_id which) const {
  if (!registers_.is_live(which)) throw std::invalid_argument("a dref that was dropped");
  return registers_.workers_of(which);
}

void* session_core::keep_local(const call_record& call, std::shared_ptr<void> value) {
  if (is_over_) refuse(call, failure(cause::closed, "the session has ended"));
  if (!value) {
    refuse(call, failure(cause::protocol_error,
                         "worker 0 says that it has shown a value, and has not"));
  }
  const register_id which = call.taken.front();
  if (!registers_.is_live(which)) {
    refuse(call, failure(cause::register_lost, "its dref was dropped before it ended"));
  }
  return registers_.keep_local(which, std::move(value));
}

void dropped_registers::tell_session() noexcept {
  // It may be the last share of the session, which takes the mutex when it ends.
  std::shared_ptr<void> last;
  const std::lock_guard lock(mutex_);
  if (session_ != nullptr) last = session_->note_dropped();
}

std::shared_ptr<void> session_core::note_dropped() noexcept {
  if (is_drop_noted_.exchange(true)) return nullptr;
  std::shared_ptr<session_core> self = weak_from_this().lock();
  if (!self) return nullptr;
  drop_note_.keep(self);
  if (home().try_execute(drop_note_)) return nullptr;
  drop_note_.let_go();
  return self;
}

// The next command takes the releases along; without one they go by themselves.
void session_core::drop_noted() noexcept {
  is_drop_noted_.store(false);
  if (is_over_ || late_release_.is_armed()) return;
  home().arm(late_release_, later(home().now(), patience_for_releases));
}

void session_core::release_late() noexcept {
  if (!is_over_) release_dropped();
}

void session_core::release_dropped() {
  if (!registers_.has_dropped()) return;
  std::vector<std::vector<register_id>> gone(links_.size());
  registers_.release_dropped([&](register_id which, const std::vector<int>& workers) {
    for (const int worker : workers)
      gone[static_cast<std::size_t>(worker)].push_back(which);
  });
  for (const auto& link : links_) {
    if (link->state() != worker_state::ready) continue;
    std::span<const register_id> left = gone[static_cast<std::size_t>(link->id())];
    while (!left.empty()) {
      const auto some = left.first(std::min(left.size(), command_wire::most_releases));
      left = left.subspan(some.size());
      command_head head{};
      head.kind = command_kind::release;
      head.releases = static_cast<std::uint32_t>(some.size());
      const std::span<const std::byte> block = std::as_bytes(some);
      link->push(head, {block.begin(), block.end()});
    }
  }
}

// --- issuing -------------------------------------------------------------------------

std::uint32_t session_core::mesh_of(const std::vector<int>& workers) {
  const auto [mesh, is_new] = meshes_.find_or_add(workers);
  if (is_new) {
    for (const int each : workers) {
      auto [head, block] = mesh->description();
      link_of(each).push(head, std::move(block));
    }
  }
  return mesh->id;
}

std::shared_ptr<call_record> session_core::issue(remote_request& request) {
  check_reactor();
  auto call = std::make_shared<call_record>(*this, last_call_ + 1);
  call->function = std::move(request.function);
  call->where = request.where;
  call->values = std::move(request.values);
  call->wish = request.wish;
  check(request, *call);
  release_dropped();
  check_registers(request, *call);

  ++last_call_;
  command_head& head = call->head;
  head.call = call->id;
  head.kind = call->is_sync() ? command_kind::sync : command_kind::call;
  head.types = request.types;
  for (const int id : request.workers) {
    call->parts.push_back({.worker = id, .incarnation = link_of(id).incarnation()});
  }
  call->taken = std::move(request.takes);
  note_makers(*call);
  if (request.is_alone) head.set(command_flag::is_alone);
  if (request.fills && request.wish < answer_wish::one_value) name_result(request, *call);
  if (!request.is_alone && !call->is_sync()) head.mesh = mesh_of(request.workers);
  const std::span<const std::byte> written = call->values.written();
  head.name_bytes = static_cast<std::uint16_t>(call->function.size());
  head.values_bytes = static_cast<std::uint32_t>(written.size());
  const auto name = std::as_bytes(std::span(call->function));
  call->front.reserve(name.size() + written.size());
  call->front.insert(call->front.end(), name.begin(), name.end());
  call->front.insert(call->front.end(), written.begin(), written.end());
  if (request.wish == answer_wish::one_value) {
    call->from = static_cast<std::size_t>(
        std::ranges::find(request.workers, request.from) - request.workers.begin());
  }
  if (request.wish >= answer_wish::one_value) call->answers.resize(call->parts.size());
  if (request.local) source_->locals(0)->expect(call->id, request.local);
  open_.emplace(call->id, call);
  for (std::size_t rank = 0; rank < call->parts.size(); ++rank) {
    const bool asks = request.wish == answer_wish::all_values ||
                      (request.wish == answer_wish::one_value && rank == call->from);
    command_head own = head;
    if (asks) own.set(command_flag::wants_value);
    if (request.wish == answer_wish::end) own.set(command_flag::wants_end);
    link_of(call->parts[rank].worker).push(own, call);
  }
  call->has_limit = request.limit != duration::max();
  if (call->has_limit || request.token.stop_possible()) {
    call->deadline.begin(home(), later(home().now(), request.limit), request.token);
  }
  return call;
}

/// Refuses what no worker need be asked about.
void session_core::check(const remote_request& request, const call_record& call) const {
  if (is_ending()) refuse(call, failure(cause::closed, "the session has ended"));
  try {
    check_workers(request.workers);
  } catch (const std::invalid_argument& e) {
    refuse(call, failure(cause::invalid_argument, e.what()));
  }
  if (request.is_replayable && !request.is_alone) {
    refuse(call,
           failure(cause::invalid_argument,
                   "a function that takes part in collectives cannot run again on "
                   "one worker: declare it mw::alone, or do not make it replayable"));
  }
  if (call.function.size() > command_wire::longest_name) {
    refuse(call, failure(cause::invalid_argument,
                         "the name of a function has 255 bytes at most"));
  }
  if (request.fills && request.into == register_id() && registers_.is_full()) {
    refuse(call, failure(cause::overloaded,
                         fmt::format("{} drefs live, and there can be no more",
                                     register_file::most_registers)));
  }
  if (call.values.written().size() > command_wire::most_value_bytes) {
    refuse(call, failure(cause::invalid_argument,
                         "the values of a call have 16 MiB at most: larger ones are "
                         "tensors"));
  }
  if (request.wish == answer_wish::one_value &&
      std::ranges::count(request.workers, request.from) == 0) {
    refuse(call, failure(cause::invalid_argument,
                         fmt::format("worker {} is not in the mesh", request.from)));
  }
  if (request.local && source_->locals(0) == nullptr) {
    refuse(call, failure(cause::invalid_argument,
                         "worker 0 is in another process: its values are local with "
                         "mw::processes::worker0 = mw::in_controller(functions)"));
  }
  for (const int id : request.workers) {
    const worker_link& link = link_of(id);
    if (link.state() == worker_state::ready) {
      if (!link.is_stuck()) continue;
      failure f(cause::overdue,
                fmt::format("worker {} is stuck in {}", id, link.stuck_in()));
      f.rank = id;
      refuse(call, std::move(f));
    }
    failure f(link.state() == worker_state::lost && link.why_lost()
                  ? link.why_lost().cause
                  : cause::not_joined,
              fmt::format("worker {} is lost: {}", id, link.loss()));
    f.rank = id;
    refuse(call, std::move(f));
  }
}

/// Refuses registers that do not hold what the call takes, and names why.
void session_core::check_registers(const remote_request& request,
                                   const call_record& call) const {
  for (const int id : request.workers) {
    for (const register_id which : request.takes) {
      const auto why = registers_.why_not(which, id, link_of(id).incarnation());
      if (why) refuse(call, *why);
    }
    if (request.into == register_id() || call.is_sync()) continue;
    if (const auto why = registers_.why_not_filled(request.into, id)) refuse(call, *why);
  }
}

/// Another call may fill a register again behind the one that made it first: who takes it
/// then depends on the later one alone.
void session_core::note_makers(call_record& call) const {
  for (const register_id which : call.taken) {
    for (const call_part& part : call.parts) {
      const std::uint64_t maker = registers_.maker_of(which, part.worker);
      if (open_.contains(maker) && !call.waits_for(maker)) call.makers.push_back(maker);
    }
  }
}

void session_core::refuse(const call_record& call, failure why) const {
  why.world = world_name(name_);
  why.operation = operation_kind::call;
  why.call = fmt::format("{} of {}", call.id, call.is_sync() ? "sync" : call.function);
  throw call_error(std::move(why), call.id, call.function, call.where, {});
}

// --- ending ----------------------------------------------------------------------

std::shared_ptr<call_record> session_core::find(std::uint64_t call) const noexcept {
  const auto at = open_.find(call);
  return at == open_.end() ? nullptr : at->second;
}

bool call_record::is_answered() const noexcept {
  if (has_failed()) return true;
  switch (wish) {
    case answer_wish::none:
      return !is_being_sent();
    case answer_wish::one_value:
      return parts[from].state == part_state::ended;
    case answer_wish::end:
    case answer_wish::all_values:
      return is_over();
  }
  return false;
}

call_record::~call_record() {
  MW_ASSERT(!patience.is_armed() && !grace.is_armed(),
            "a call that its session has let go waits for nothing");
}

void call_record::waited_for_loss() noexcept { core.waited_for_loss(*this); }

void call_record::grace_is_over() noexcept { core.note_stuck(*this); }

void call_record::given_up(cause why_given_up) noexcept {
  core.give_up(*this, why_given_up);
}

void session_core::examine(call_record& call) noexcept {
  // Law 4: the caller's memory is read no more.
  if (call.waiter == nullptr || !call.is_answered() || call.is_being_sent() ||
      call.awaits_loss)
    return;
  call.deadline.end();
  call.is_told = true;
  std::exchange(call.waiter, nullptr)->resume();
}

void session_core::part_ended(const std::shared_ptr<call_record>& call) {
  examine(*call);
  if (call->is_over()) settle(call);
}

void session_core::part_failed(const std::shared_ptr<call_record>& call,
                               worker_text text) {
  failure f(text.cause == cause::none ? cause::handler_failed : text.cause,
            fmt::format("worker {}, incarnation {}: {}", text.worker, text.incarnation,
                        text.text));
  f.rank = text.worker;
  text.cause = f.cause;
  call->told.push_back(std::move(text));
  if (!call->has_failed() && f.breaks_world()) await_loss(call);
  fail(call, std::move(f));
  if (call->is_over()) settle(call);
}

void session_core::give_up(call_record& call, cause why) noexcept {
  const std::shared_ptr<call_record> open = find(call.id);
  if (open == nullptr) return;
  std::string waits;
  for (const call_part& part : call.parts) {
    if (!part.is_over())
      waits +=
          fmt::format("{} {}", waits.empty() ? "not ended by worker" : ",", part.worker);
  }
  fail(open, failure(why, waits));
  if (open->is_over()) settle(open);
}

/// What is said of those that take what a call should have made.
static failure why_not_made(const call_record& call) {
  // A chain of such calls names as many as fit.
  constexpr std::size_t longest_reason = 1024;
  const std::string& reason = call.why->detail;
  failure f(
      cause::register_lost,
      fmt::format("call {} of {}, which should have made an argument, failed by {}{}",
                  call.id, call.function, name_of(call.why->cause),
                  reason.empty() || reason.size() > longest_reason ? "" : ": " + reason));
  f.rank = call.why->rank;
  return f;
}

/// Ends a call on all of its workers, and those that wait for what it should have made.
void session_core::fail(const std::shared_ptr<call_record>& call, failure why) {
  if (call->has_failed()) return;
  why.world = world_name(name_);
  why.operation = operation_kind::call;
  why.call = fmt::format("{} of {}", call->id, call->is_sync() ? "sync" : call->function);
  call->why = std::move(why);
  // Of one that awaits a loss it is not known yet who failed it.
  if (!call->awaits_loss) tell_of_failure(*call);
  end_parts(*call);
  if (!call->is_over()) home().arm(call->grace, later(home().now(), limits_.grace));
  if (call->is_told && !call->was_cancelled) keep_untold(call);
  examine(*call);
  const register_id result = call->head.result;
  if (!call->head.has(command_flag::fills)) return;
  failure not_made = why_not_made(*call);
  registers_.fail(result, *call, std::make_shared<const failure>(not_made));
  std::vector<std::shared_ptr<call_record>> behind;
  for (auto at = open_.upper_bound(call->id); at != open_.end(); ++at) {
    if (at->second->waits_for(call->id)) behind.push_back(at->second);
  }
  for (const auto& next : behind) {
    if (next->told.empty()) next->told = call->told;
    fail(next, not_made);
    if (next->is_over()) settle(next);
  }
}

void session_core::tell_of_failure(const call_record& call) noexcept {
  const failure& why = *call.why;
  session_event e{
      .kind = session_event_kind::call_failed, .call = call.id, .cause = why.cause};
  if (why.rank != no_rank) {
    e.worker = static_cast<int>(why.rank);
    e.incarnation = link_of(e.worker).incarnation();
  }
  try {
    e.text = why.text();
  } catch (const std::bad_alloc&) {
    // It is told without its text.
  }
  tell(e);
}

void session_core::keep_untold(const std::shared_ptr<call_record>& call) {
  untold_.emplace(call->id, call);
  if (untold_.size() <= most_untold) return;
  const std::shared_ptr<call_record> oldest = untold_.begin()->second;
  untold_.erase(untold_.begin());
  access::core(runtime_).log(
      log_level::warning,
      fmt::format("session {}: an error that no sync has asked for is dropped: {}", name_,
                  exception_text(error_of(*oldest))));
}

void session_core::end_parts(call_record& call) {
  command_head head{};
  head.kind = command_kind::end;
  head.call = call.id;
  for (call_part& part : call.parts) {
    worker_link& link = link_of(part.worker);
    if (call.head.mesh != 0) link.hold_behind(call.id);
    if (part.state == part_state::queued) {
      const bool has_earlier = link.take_back(call);
      part.state = has_earlier ? part_state::begun : part_state::unsent;
      part.waits_to_skip = has_earlier;
    } else if (part.state == part_state::begun) {
      link.tell(head);
    }
  }
}

/// All have ended it: lets those go on that are held behind it.
void session_core::settle(const std::shared_ptr<call_record>& call) {
  if (std::exchange(call->is_settled, true)) return;
  home().timers().disarm(call->grace);
  open_.erase(call->id);
  if (!call->has_failed()) return;
  command_head head{};
  head.kind = command_kind::resume;
  head.call = call->id;
  const bool forms_again = must_form_again(*call);
  if (forms_again) {
    session_mesh& mesh = meshes_[call->head.mesh];
    ++mesh.number;
    head = mesh.next_world();
    head.call = call->id;
  }
  for (const call_part& part : call->parts) {
    link_of(part.worker).let_go(call->id);
    if (part.state == part_state::lost) continue;
    if (part.is_held() || forms_again) link_of(part.worker).tell(head);
  }
}

bool session_core::must_form_again(const call_record& call) noexcept {
  if (call.head.mesh == 0) return false;
  bool is_over = false;
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  for (const call_part& part : call.parts) {
    // Without it there is no next epoch: its replacement forms one.
    if (part.state == part_state::lost) return false;
    if (part.state == part_state::ended && !part.is_counted) is_over = true;
    is_over = is_over || part.world_is_over ||
              part.collectives != call.parts.front().collectives;
    sent += part.sent;
    received += part.received;
  }
  return is_over || sent != received;
}

std::exception_ptr session_core::error_of(const call_record& call) const {
  if (!call.why) return nullptr;
  return std::make_exception_ptr(
      call_error(*call.why, call.id, call.function, call.where, call.told));
}

/// Of a register that has no value, although that was told before.
std::exception_ptr session_core::why_never_made(register_id which) const {
  std::optional<failure> why = registers_.why_never_made(which);
  if (!why) return nullptr;
  why->world = world_name(name_);
  why->operation = operation_kind::call;
  return std::make_exception_ptr(
      call_error(*std::move(why), 0, {}, source_position(), {}));
}

std::exception_ptr session_core::take_untold(register_id which) noexcept {
  auto at = untold_.begin();
  if (which != register_id()) {
    while (at != untold_.end() && !(at->second->head.result == which)) ++at;
  }
  if (at == untold_.end()) return why_never_made(which);
  const std::shared_ptr<call_record> call = at->second;
  untold_.erase(at);
  return error_of(*call);
}

}  // namespace manyworlds::inline v0::detail
