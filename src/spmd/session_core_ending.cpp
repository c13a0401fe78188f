// How a call ends: answered, given up, failed with its workers, settled.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "duration_text.hpp"
#include "exception_text.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "spmd/session_core.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

using command_wire::command_flag;
using command_wire::command_head;
using command_wire::command_kind;

// Errors of issued calls that wait for a sync.
constexpr std::size_t most_untold = 1024;

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
  if (call.waiter != nullptr && take_answer(call))
    std::exchange(call.waiter, nullptr)->resume();
}

bool session_core::take_answer(call_record& call) noexcept {
  // Law 4: the caller's memory is read no more.
  if (!call.is_answered() || call.is_being_sent() || call.awaits_loss) return false;
  call.deadline.end();
  call.is_told = true;
  return true;
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
    // Before any worker goes on. Of others that have ended there lately only their
    // workers know (`worker_loop::note_cut_calls`).
    fail_cut_calls(call->head.mesh, call->id,
                   failure(cause::broken_by_user,
                           fmt::format("call {} of {} has failed, and with it ended the "
                                       "mesh's world, in which a worker had ended this "
                                       "one already",
                                       call->id, call->function)));
    session_mesh& mesh = meshes_[call->head.mesh];
    mesh.supersede();
    head = mesh.next_world();
    head.call = call->id;
  }
  for (const call_part& part : call->parts) {
    link_of(part.worker).let_go(call->id);
    if (part.state == part_state::lost) continue;
    if (part.is_held() || forms_again) link_of(part.worker).tell(head);
  }
}

/// What a worker has ended in the last world of a mesh, the others cannot end in the next
/// one: its messages went with that world, and a later call would meet it (S-d).
void session_core::fail_cut_calls(std::uint32_t mesh, std::uint64_t behind,
                                  const failure& why) {
  std::vector<std::shared_ptr<call_record>> cut;
  for (auto at = open_.upper_bound(behind); at != open_.end(); ++at) {
    const std::shared_ptr<call_record>& call = at->second;
    const auto has_used_it = [](const call_part& part) {
      const bool has_not =
          part.is_counted && part.sent + part.received + part.collectives == 0;
      return part.state == part_state::ended && !has_not;
    };
    if (call->head.mesh == mesh && std::ranges::any_of(call->parts, has_used_it))
      cut.push_back(call);
  }
  for (const auto& call : cut) {
    fail(call, why);
    if (call->is_over()) settle(call);
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

// --- workers that are lost, or stuck ---------------------------------------------

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

/// Lets those go on that have ended the call, although not all have, and those that will.
void session_core::let_others_go(call_record& call) {
  call.lets_go = true;
  command_head head{};
  head.kind = command_kind::resume;
  head.call = call.id;
  for (const call_part& part : call.parts) {
    if (!part.is_over()) continue;
    link_of(part.worker).let_go(call.id);
    if (part.is_held()) link_of(part.worker).tell(head);
  }
}

}  // namespace manyworlds::inline v0::detail
