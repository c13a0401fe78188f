#include "serve/dispatch_core.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "manyworlds/detail/assertion.hpp"
#include "serve/client_session.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// Workers are checked only while calls wait for a suspicion to end: this is cheaper
/// than a subscriber of events for each worker that has none.
constexpr duration suspect_check_period = std::chrono::milliseconds(100);

/// A call at a stopped worker has another one within a second and a half: a second
/// passes until the suspicion, and this is well under the rest.
constexpr duration ask_again_period = std::chrono::milliseconds(50);
/// The part of a repeated call that each answered call gives back.
constexpr double budget_of_answer = 0.1;

/// Limit of users' picks between two runs of the timer: all waiting calls may refuse
/// all workers, and a turn may bring news of all of them.
constexpr int most_picks = 256;
/// Long enough not to be due in the turn in which it is armed.
constexpr duration next_turn = std::chrono::nanoseconds(1);
static_assert(ask_again_period < std::chrono::milliseconds(500));
static_assert(next_turn > duration::zero());

}  // namespace

dispatch_core::dispatch_core(dispatch_options options) noexcept
    : options_(options), budget_(static_cast<double>(options.ask_again)) {}

dispatch_core::~dispatch_core() {
  MW_ASSERT(workers_.sessions().empty() && queue_.empty(),
            "workers and calls keep their dispatcher");
  MW_ASSERT(!timer_.is_armed() && !suspicion_timer_.is_armed(),
            "no timer waits without a call");
}

executor& dispatch_core::enter() {
  executor* const here = executor::current();
  if (!here) throw std::logic_error("a dispatcher can be used only from tasks");
  if (!home_) home_ = here;
  if (home_ != here) {
    failure f(cause::invalid_argument,
              "a dispatcher can be used only from tasks of one reactor");
    f.operation = operation_kind::call;
    throw world_error(std::move(f));
  }
  return *home_;
}

std::uint64_t dispatch_core::wire_id(const call_state& c, world& w) {
  // Other leaders, and this process in an earlier life, begin elsewhere.
  if (first_wire_id_ == 0) first_wire_id_ = access::core(w).runtime().random_word() | 1;
  return first_wire_id_ + c.number();
}

// --- calls

void dispatch_core::admit(call_state& c) {
  MW_ASSERT(home_ && home_->is_current(),
            "calls are admitted on the dispatcher's reactor");
  MW_ASSERT(!c.is_queued() && !c.has_try() && !c.is_over(), "a call is admitted once");
  const auto refuse = [&c](failure f) { throw world_error(c.describe(std::move(f))); };
  if (is_closed_) refuse(no_worker_left());
  if (is_draining_)
    refuse(failure(cause::closed, "the runtime is stopping: it takes no new calls"));
  if (queue_.empty()) {
    workers_.refresh_candidates();
    if (offer(c)) return;
    if (is_closed_) refuse(no_worker_left());
  }
  if (workers_.is_alone() && options_.patience <= duration::zero())
    refuse(no_worker_left());
  if (queue_.size() >= options_.queue) {
    refuse(failure(cause::overloaded,
                   fmt::format("{} calls already wait for {} workers: try later, or "
                               "raise dispatch_options::queue",
                               queue_.size(), workers_.sessions().size())));
  }
  const bool is_first = queue_.empty();
  enqueue(c);
  // The first one was offered above.
  if (!is_first) distribute();
}

void dispatch_core::queue_again(call_state& c) {
  enqueue(c);
  if (is_closed_) return c.give_up(no_worker_left());
  end_overdue_calls();
  distribute();
}

void dispatch_core::enqueue(call_state& c) {
  // A call that finds no memory in the queue must not say that it stands there.
  queue_.add(c);
  c.set_queued();
  c.alone_since = workers_.is_alone() ? home_->now() : time_point::max();
  // A call that joins makes nothing due earlier.
  if (!timer_.is_armed()) set_timer();
}

void dispatch_core::forget(call_state& c) noexcept {
  c.set_not_queued();
  queue_.remove(c);
  if (!queue_.empty()) return;
  if (is_draining_) end_drained_sessions();
  // Touch the home only if a timer is armed: the reactor may be gone before this object
  // is.
  if (timer_.is_armed()) home_->timers().disarm(timer_);
}

bool dispatch_core::offer(call_state& c) {
  if (!workers_.has_room()) return false;
  if (!c.wants_another()) return offer(c, workers_.candidates());
  worker_choice others = workers_.others_than_its_own(c);
  if (others.sessions.empty() || !offer(c, others)) return false;
  budget_ = std::max(0.0, budget_ - 1);
  ++counters_.asked_twice;
  if (serving_tally* const t = tally()) ++t->calls_asked_twice;
  workers_.refresh_candidates();
  return true;
}

bool dispatch_core::offer(call_state& c, worker_choice& among) {
  MW_ASSERT(among.sessions.size() == among.shown.size(),
            "each worker that is shown has a session");
  const std::optional<std::size_t> chosen = c.pick()(among.shown);
  // The pick may have destroyed the dispatcher.
  if (!chosen || is_closed_) return false;
  if (*chosen >= among.shown.size()) {
    throw world_error(c.describe(
        failure(cause::invalid_argument,
                fmt::format("pick chose worker {}, but it was shown only {} workers",
                            *chosen, among.shown.size()))));
  }
  client_session& session = *among.sessions[*chosen];
  if (!session.has_room()) return false;
  session.assign(c);
  among.shown[*chosen] = session.status();
  if (!suspicion_timer_.is_armed())
    home_->timers().arm(suspicion_timer_, later(home_->now(), ask_again_period));
  return true;
}

void dispatch_core::distribute() noexcept {
  if (!queue_.empty() && queue_.begin_round()) go_on_offering();
}

void dispatch_core::go_on_offering() noexcept {
  // A pick may call this again.
  if (std::exchange(is_distributing_, true)) return;
  workers_.refresh_candidates();
  const bool had_room = workers_.has_room();
  for (; queue_.is_in_round() && workers_.has_room() && picks_ < most_picks; ++picks_) {
    call_state& c = queue_.take_offer();
    // Its worker was heard again, or too many calls were asked twice.
    if (c.has_try() && !may_ask_again(c)) {
      forget(c);
      continue;
    }
    try {
      if (offer(c)) forget(c);
    } catch (...) {
      c.give_up(std::current_exception());
    }
  }
  if (!workers_.has_room() || !queue_.is_in_round()) queue_.end_round();
  is_distributing_ = false;
  if (had_room) set_timer();
}

// --- asking twice

bool dispatch_core::may_ask_again(const call_state& c) noexcept {
  return budget_ >= 1 && c.tries() < options_.tries && c.is_held_up() &&
         !workers_.looks_frozen();
}

void dispatch_core::ask_again_for_suspects() noexcept {
  MW_ASSERT(home_->is_current(), "suspects are checked on the dispatcher's reactor");
  bool has_unanswered = false;
  // Check also before any is suspect: the freeze may be over by then.
  const bool is_frozen = workers_.looks_frozen();
  std::vector<call_state*> held_up;
  for (const client_session* session : workers_.sessions()) {
    // A worker that was heard since is suspect only until its world has been told.
    const bool is_suspect = session->is_suspect() && session->is_silent();
    session->for_each_call([&](call_state& c) {
      if (c.is_over() || c.is_committed()) return;
      has_unanswered = true;
      if (is_suspect && !is_frozen && !c.is_queued() && may_ask_again(c))
        held_up.push_back(&c);
    });
  }
  // A call that several suspects have is met several times. No user code runs before
  // all of them stand in the queue.
  for (call_state* c : held_up) {
    if (!c->is_queued() && !c->wants_another()) c->want_another();
  }
  if (!queue_.empty()) distribute();
  if (has_unanswered && !suspicion_timer_.is_armed())
    home_->timers().arm(suspicion_timer_, later(home_->now(), ask_again_period));
}

// --- counted

serving_tally* dispatch_core::tally() const noexcept {
  if (workers_.sessions().empty()) return nullptr;
  return &access::core(workers_.sessions().front()->in()).runtime().serving();
}

void dispatch_core::note_answered_by_another() noexcept {
  ++counters_.answered_by_another;
  if (serving_tally* const t = tally()) ++t->answered_by_another;
}

void dispatch_core::note_late_answer(world& w) noexcept {
  ++counters_.late_answers;
  ++access::core(w).runtime().serving().late_answers;
}

void dispatch_core::note_given_back(world& w) noexcept {
  ++counters_.given_back;
  ++access::core(w).runtime().serving().calls_given_back;
}

void dispatch_core::note_end(const failure& f) noexcept {
  if (f) {
    ++counters_.failed;
  } else {
    ++counters_.answered;
    budget_ =
        std::min(static_cast<double>(options_.ask_again), budget_ + budget_of_answer);
    MW_ASSERT(budget_ >= 0, "the budget of repeated calls is never below zero");
  }
}

std::string dispatch_core::name_of_call(std::uint64_t number) const {
  return options_.name.empty() ? fmt::format("{}", number)
                               : fmt::format("{} of {}", number, options_.name.view());
}

void dispatch_core::remove(client_session& session) noexcept {
  workers_.remove(session);
  const failure why = session.end_cause();
  if (!session.is_draining()) last_loss_ = why.text();
  while (call_state* const c = session.take_any_call()) c->lose(session, why);
  if (workers_.sessions().empty() && suspicion_timer_.is_armed())
    home_->timers().disarm(suspicion_timer_);
  note_membership();
}

void dispatch_core::note_membership() noexcept {
  const bool alone = workers_.is_alone();
  queue_.for_each([&](call_state& c) {
    if (!alone) {
      c.alone_since = time_point::max();
    } else if (c.alone_since == time_point::max()) {
      c.alone_since = home_->now();
    }
  });
  end_overdue_calls();
  distribute();
  set_timer();
}

void dispatch_core::note_room() noexcept {
  distribute();
  if (is_draining_) end_drained_sessions();
}

// --- calls without a worker

failure dispatch_core::no_worker_left() const {
  if (is_closed_) return failure(cause::no_member_left, "the dispatcher was destroyed");
  std::string detail = fmt::format("there was no worker for {} ms",
                                   options_.patience / std::chrono::milliseconds(1));
  if (!last_loss_.empty()) detail += "; the last worker was lost: " + last_loss_;
  return failure(cause::no_member_left, std::move(detail));
}

void dispatch_core::end_overdue_calls() noexcept {
  if (!workers_.is_alone()) return;
  const time_point now = home_->now();
  queue_.for_each([&](call_state& c) {
    if (c.alone_since == time_point::max() ||
        later(c.alone_since, options_.patience) > now)
      return;
    // A worker that takes no more calls has it, and may yet answer.
    c.has_try() ? forget(c) : c.give_up(no_worker_left());
  });
}

void dispatch_core::timer_expired() noexcept {
  picks_ = 0;
  end_overdue_calls();
  if (queue_.is_in_round()) {
    go_on_offering();
  } else {
    distribute();
  }
  // Arm it for the calls that came later.
  set_timer();
}

void dispatch_core::set_timer() noexcept {
  time_point next = time_point::max();
  if (workers_.is_alone()) {
    queue_.for_each([&](const call_state& c) {
      next = std::min(next, later(c.alone_since, options_.patience));
    });
  } else if (!queue_.empty() && workers_.has_room_at_suspects()) {
    next = later(home_->now(), suspect_check_period);
    if (timer_.is_armed()) next = std::min(next, timer_.when());
  }
  if (queue_.is_in_round()) next = std::min(next, later(home_->now(), next_turn));
  if (next != time_point::max()) {
    home_->timers().arm(timer_, next);
  } else if (timer_.is_armed()) {
    home_->timers().disarm(timer_);
  }
}

void dispatch_core::begin_drain() noexcept {
  MW_ASSERT(home_ && home_->is_current(), "a drain begins on the dispatcher's reactor");
  is_draining_ = true;
  end_drained_sessions();
}

void dispatch_core::end_drained_sessions() noexcept {
  if (!queue_.empty()) return;
  for (client_session* session : workers_.sessions()) {
    if (session->is_idle()) session->stop();
  }
}

void dispatch_core::close() noexcept {
  is_closed_ = true;
  while (!queue_.empty()) queue_.front().give_up(no_worker_left());
  for (client_session* session : workers_.sessions()) {
    session->give_up_calls(no_worker_left());
    session->stop();
  }
}

}  // namespace manyworlds::inline v0::detail
