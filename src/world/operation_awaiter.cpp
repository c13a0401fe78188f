#include "manyworlds/detail/operation_awaiter.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "manyworlds/detail/assertion.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

namespace {

bool is_point_to_point(operation_kind kind) noexcept {
  return is_message(kind) || kind == operation_kind::arrival;
}

}  // namespace

executor& operation_awaiter::await_home() const noexcept {
  return core_->runtime().user();
}

bool operation_awaiter::is_invalid() const noexcept {
  if (!is_point_to_point(kind)) return false;
  if (on.number() & lane::reserved) return true;
  if (targets) return invalid_target() != nullptr;
  if (peer == no_rank) return kind == operation_kind::send;
  return peer < 0 || peer >= core_->options().size || peer == core_->options().rank;
}

std::size_t operation_awaiter::copies() const noexcept {
  if (!targets) return 1;
  const auto others = static_cast<std::size_t>(core_->options().size - 1);
  return targets->ranks.size() + (targets->all_others ? others : 0);
}

const rank_t* operation_awaiter::invalid_target() const noexcept {
  const auto& ranks = targets->ranks;
  const auto found = std::find_if(ranks.begin(), ranks.end(), [this](rank_t r) {
    return r < 0 || r >= core_->options().size || r == core_->options().rank;
  });
  return found == ranks.end() ? nullptr : &*found;
}

std::string operation_awaiter::invalid_text() const {
  if (on.number() & lane::reserved) {
    return fmt::format("lane {:#x} is the library's own", on.number());
  }
  const rank_t wrong = targets ? *invalid_target() : peer;
  if (wrong == core_->options().rank) {
    return fmt::format("rank {} is this member itself", wrong);
  }
  return fmt::format("rank {} in a world of {} members", wrong, core_->options().size);
}

bool operation_awaiter::await_ready() noexcept {
  if (!is_point_to_point(kind) || targets || token_.stop_requested()) return false;
  if (is_invalid() || !core_->try_at_once(*this)) return false;
  outcome_ = outcome::done;
  return true;
}

bool operation_awaiter::await_start(continuation& k) noexcept {
  MW_ASSERT(!waiter_ && outcome_ == outcome::pending, "an operation is awaited once");
  waiter_ = &k;
  is_remote_ = !await_home().is_current();
  if (is_remote_) {
    interruptible().keeps = core_->shared_from_this();
    if (queue(interruption_->start)) return true;
    // The runtime has ended and takes no work; all its worlds are over.
    is_remote_ = false;
  }
  begin();
  if (outcome_ == outcome::pending) return true;
  reactor& user = core_->runtime().user();
  if (!user.is_current() || &k.home() != &user) return false;
  user.count_at_once(bytes_moved * copies());
  if (user.may_go_on_at_once()) [[likely]]
    return false;
  // A loop of operations that need no wait lets the others have their turn (law 9).
  user.schedule_next_turn(k);
  return true;
}

void operation_awaiter::begin() noexcept {
  MW_ASSERT(outcome_ == outcome::pending, "an operation begins before it ends");
  is_starting_ = !is_remote_;
  if (is_invalid()) [[unlikely]] {
    fail(cause::invalid_argument, invalid_text());
  } else if (token_.stop_requested()) {
    // An operation that is given up before it begins discards its lane too.
    if (discards && !takes_fresh_lanes) core_->discard(peer, on);
    fail(cause::cancelled, "the stop token was triggered before it started");
  } else {
    core_->start(*this);
  }
  is_starting_ = false;
  if (outcome_ != outcome::pending) return;
  if (limit) {
    reactor& user = core_->runtime().user();
    user.timers().arm(interruptible().limit, later(user.now(), *limit));
  }
  if (token_.stop_possible()) {
    interruptible().on_token.emplace(std::move(token_), on_stop{this});
  }
}

void end_awaited(operation& op, operation_end how) noexcept {
  static_cast<operation_awaiter&>(op).note_end(how);
}

void operation_awaiter::note_end(operation_end how) noexcept {
  MW_ASSERT(outcome_ == outcome::pending, "an operation has one outcome (law 1)");
  // After an abort a stream reaches its end with garbage: on a device success counts
  // only while the world is not broken.
  if (how == operation_end::done && device && core_->state() == world_state::broken)
      [[unlikely]] {
    how = operation_end::failed;
  }
  // The world is broken and its backend is not told yet: that a peer has left meanwhile
  // is not the first cause (law 3).
  if (how == operation_end::failed && failed_with == cause::closed &&
      core_->state() == world_state::broken) [[unlikely]] {
    failed_with = cause::none;
  }
  enum cause ended_by = cause::none;
  if (how == operation_end::withdrawn) {
    ended_by = given_up_ == reason::late ? cause::timed_out : cause::cancelled;
  } else if (how == operation_end::failed) {
    ended_by = failed_with;
    if (ended_by == cause::none) ended_by = core_->first_failure().cause;
  }
  core_->remove_pending(*this, ended_by);
  if (how == operation_end::done) {
    finish(outcome::done);
  } else if (how == operation_end::failed) {
    finish(outcome::failed);
  } else if (given_up_ == reason::task_cancelled) {
    finish(outcome::cancelled);
  } else {
    failed_with = ended_by;
    finish(outcome::failed);
  }
}

void operation_awaiter::finish(outcome how) noexcept {
  MW_ASSERT(outcome_ == outcome::pending && how != outcome::pending && !is_pending,
            "an operation finishes once, when the core no longer lists it (law 1)");
  outcome_ = how;
  if (how == outcome::failed) make_failure();
  disarm();
  if (!is_starting_) resume_if_quiet();
}

void operation_awaiter::disarm() noexcept {
  if (!interruption_) return;
  core_->runtime().user().timers().disarm(interruption_->limit);
  // Waits for a callback that runs on another thread; it only queues work.
  interruption_->on_token.reset();
}

void operation_awaiter::make_failure() noexcept {
  MW_ASSERT(!failure_, "an operation has one failure (law 1)");
  if (failed_with == cause::none) {
    failure_ = std::make_unique<failure>(core_->first_failure());
    failure_->operation = kind;
    name_message(*failure_);
    core_->tally().note_error(failure_->cause);
    return;
  }
  core_->tally().note_error(failed_with);
  rank_t with = peer != no_rank ? peer : info.source;
  if (failed_with == cause::closed && core_->has_left_itself()) {
    with = core_->options().rank;
    failure_detail = "this member called leave()";
  }
  failure_ = std::make_unique<failure>(
      core_->describe_failure(failed_with, with, kind, std::move(failure_detail)));
  name_message(*failure_);
}

void operation_awaiter::name_message(failure& f) const noexcept {
  if (!is_point_to_point(kind)) return;
  f.operation_peer = peer != no_rank ? peer : info.source;
  const bool is_own = (on.number() & lane::reserved) != 0;
  if (!takes_fresh_lanes && !is_own) f.operation_lane = on;
}

bool operation_awaiter::give_up(reason why) noexcept {
  if (outcome_ != outcome::pending) return false;
  const bool again = given_up_ != reason::none;
  // A cancelled task is not resumed with an error that came a moment earlier.
  if (!again || why == reason::task_cancelled) given_up_ = why;
  if (is_collective(kind)) {
    // The others count on this member: a stop waits, a deadline is the world's. Both are
    // heard, and the end of the task's runtime, whichever came first.
    if (why == reason::late) {
      core_->break_for_the_deadline_of(*this);
    } else if (why == reason::task_cancelled && must_end_) {
      core_->break_for_the_end_of(*this);
    }
    return false;
  }
  if (again) return false;
  if (!core_->withdraw(*this)) return false;
  const enum cause ended_by = why == reason::late ? cause::timed_out : cause::cancelled;
  core_->remove_pending(*this, ended_by);
  if (why != reason::task_cancelled) {
    failed_with = ended_by;
    finish(outcome::failed);
    return false;
  }
  MW_ASSERT(outcome_ == outcome::pending && !is_pending,
            "what was withdrawn is not ended otherwise (law 1)");
  outcome_ = outcome::cancelled;
  disarm();
  return shut_gate();
}

bool operation_awaiter::shut_gate() noexcept {
  int none = 0;
  return !interruption_ || interruption_->gate.compare_exchange_strong(none, shut);
}

bool operation_awaiter::await_cancel() noexcept {
  MW_ASSERT(waiter_, "only an operation that was started is cancelled");
  // The cancelling work reads it, on the world's reactor.
  must_end_ = waiter_->home().cancels_for_the_last_time();
  if (!is_remote_) return give_up(reason::task_cancelled);
  queue(interruption_->cancel);
  return false;
}

bool operation_awaiter::queue(work& w) noexcept {
  std::atomic<int>& gate = interruption_->gate;
  int queued = gate.load();
  do {
    MW_ASSERT(queued >= shut, "queued work is never less than none");
    if (queued == shut) return false;
  } while (!gate.compare_exchange_weak(queued, queued + 1));
  if (core_->runtime().user().try_post(w)) return true;
  work_is_done();
  return false;
}

void operation_awaiter::work_is_done() noexcept {
  [[maybe_unused]] const int before = interruption_->gate.fetch_sub(1);
  MW_ASSERT(before > 0, "work that is done was counted when it was queued");
  if (outcome_ != outcome::pending) resume_if_quiet();
}

void operation_awaiter::resume_if_quiet() noexcept {
  MW_ASSERT(waiter_, "an operation that ends has a waiter");
  // Not while work is queued, which refers to this object: the last of it resumes the
  // waiter.
  if (!shut_gate()) return;
  reactor& user = core_->runtime().user();
  // The reactor itself is named, since a call through `executor` costs 2 ns.
  if (&waiter_->home() == &user && user.is_current()) return user.schedule(*waiter_);
  waiter_->resume();
}

void operation_awaiter::on_stop::operator()() const noexcept {
  op->queue(op->interruption_->stop);
}

void operation_awaiter::begin_here() noexcept {
  begin();
  work_is_done();
}

void operation_awaiter::cancel_here() noexcept {
  // This work is counted, so that giving up cannot shut the gate: `work_is_done`
  // resumes the waiter.
  give_up(reason::task_cancelled);
  work_is_done();
}

void operation_awaiter::stop_here() noexcept {
  give_up(reason::stopped);
  work_is_done();
}

void operation_awaiter::await_resume() {
  if (failure_) throw world_error(std::move(*failure_));
}

failure operation_awaiter::take_failure() {
  return failure_ ? std::move(*failure_) : failure();
}

}  // namespace manyworlds::inline v0::detail
