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
#include "manyworlds/store/store_error.hpp"
#include "spmd/local_places.hpp"
#include "spmd/mesh_name.hpp"
#include "spmd/register_file.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

using namespace std::chrono_literals;

using command_wire::command_flag;
using command_wire::command_head;
using command_wire::command_kind;

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
  // One may be lost while a later one is awaited.
  bool some_come_again = true;
  while (some_come_again) {
    for (const auto& link : self->links_) co_await link->decided();
    some_come_again = false;
    for (const auto& link : self->links_) {
      const bool comes_again = link->state() == worker_state::lost &&
                               self->source_->comes_again() && !self->is_ending();
      if (!comes_again) continue;
      some_come_again = true;
      link->decided().reset();
      link->wanted().set();
    }
  }
  const std::string absent = self->absent_workers();
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

std::string session_core::absent_workers() const {
  std::string absent;
  for (const auto& link : links_) {
    if (link->state() == worker_state::ready) continue;
    absent += fmt::format("{}worker {}: {}", absent.empty() ? "" : "; ", link->id(),
                          link->loss().empty() ? "it is awaited" : link->loss());
  }
  return absent;
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

/// Says what a worker has said that could not join, behind how it has ended.
task<std::string> session_core::told_by(const worker_link& link, std::string how) {
  try {
    const auto said = co_await source_->meeting().try_get(
        refusal_key(name_, link.id(), link.incarnation()));
    if (said) how += ": " + *said;
  } catch (const store_error&) {
    // How it ended is told without it.
  }
  co_return how;
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
      const bool has_ended = !reason.empty();
      if (has_ended) how = std::move(reason);
      if (has_ended && why.cause == cause::not_joined)
        how = co_await told_by(link, std::move(how));
    } catch (const timed_out&) {
      // It lives, silent or cut off: it is killed below.
    }
    lose(link, why, how);
    // Those that leave in order are waited for at the end.
    if (!closing_.is_set()) co_await source_->end(link.id(), 0s);
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
    fail_cut_calls(mesh.id, 0, loss_of(link));
    mesh.supersede();
    auto [head, block] = mesh.description();
    link.push(head, std::move(block));
    command_head next = mesh.next_world();
    // Of what was ended in the last world all calls before these are over everywhere.
    next.call = open_.empty() ? last_call_ : open_.begin()->first - 1;
    for (const int other : mesh.workers) {
      if (other != link.id() && link_of(other).state() == worker_state::ready)
        link_of(other).tell(next);
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

}  // namespace manyworlds::inline v0::detail
