#include "serve/call_state.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "manyworlds/detail/assertion.hpp"
#include "serve/client_session.hpp"
#include "serve/dispatch_core.hpp"

namespace manyworlds::inline v0::detail {

call_state::call_state(std::shared_ptr<dispatch_core> core, pick_reference pick,
                       std::uint64_t number) noexcept
    : core_(std::move(core)), pick_(pick), number_(number) {}

call_state::~call_state() {
  give_up(failure(cause::cancelled, "the call's reply stream was destroyed"));
  // The call was unwound while its request was being sent.
  if (is_sending_ && sending_) sending_.session->cancel(sending_.slot);
}

void call_state::begin(executor& home, duration limit, std::stop_token token) {
  MW_ASSERT(home.is_current(), "a call begins on the dispatcher's reactor");
  due_ = later(home.now(), limit);
  deadline_.begin(home, due_, std::move(token));
}

void call_state::check() const {
  if (!is_over_ || replies_.came() > 0) return;
  if (error_) std::rethrow_exception(error_);
  if (failure_) throw world_error(failure_);
}

bool call_state::is_held_up() const noexcept {
  if (is_over_ || is_committed_ || !has_try()) return false;
  const auto is_suspect = [](const call_try& t) { return t.session->is_suspect(); };
  if (is_sending_ && sending_ && !is_suspect(sending_)) return false;
  return std::all_of(asked_.begin(), asked_.end(), is_suspect);
}

bool call_state::was_given_to(const client_session& session) const noexcept {
  if (is_sending_ && sending_.session == &session) return true;
  return std::any_of(asked_.begin(), asked_.end(),
                     [&](const call_try& t) { return t.session == &session; });
}

// --- to a worker

void call_state::set_queued() noexcept {
  MW_ASSERT(!is_queued_ && !is_over_, "a call that waits is queued once");
  is_queued_ = true;
  note_change();
}

void call_state::set_sending(client_session& session, std::uint32_t slot) noexcept {
  MW_ASSERT(!is_sending_ && !sending_, "a request is sent to one worker at a time");
  MW_ASSERT(!is_over_, "a call that is over is given to no worker");
  if (std::exchange(wants_another_, false)) was_asked_again_ = true;
  is_queued_ = false;
  is_sending_ = true;
  is_unwanted_ = false;
  sending_ = {&session, slot};
  withdrawn_.reset();
  ++tries_;
  worker_ = session.describe_worker();
  note_change();
}

call_try call_state::end_sending(bool was_sent) noexcept {
  MW_ASSERT(is_sending_, "a sending ends once");
  is_sending_ = false;
  const call_try to = std::exchange(sending_, call_try());
  if (!to) return to;
  if (!was_sent || is_over_ || is_unwanted_) return to;
  // Its answer may have overtaken the end of the sending: then it is the only one.
  asked_.push_back(to);
  return call_try();
}

void call_state::withdraw() noexcept {
  is_unwanted_ = true;
  withdrawn_.set();
}

void call_state::want_another() {
  MW_ASSERT(!is_committed_, "a call that is committed wants no other worker");
  wants_another_ = true;
  if (is_sending_) {
    // It is queued when the sending has ended.
    withdraw();
  } else {
    core_->enqueue(*this);
  }
}

// --- from a worker

void call_state::cancel_asked() noexcept {
  for (const call_try& t : asked_) t.session->cancel(t.slot);
  asked_.clear();
}

void call_state::commit_to(call_try from) noexcept {
  if (std::exchange(is_committed_, true)) return;
  MW_ASSERT(
      from && (from == sending_ || std::count(asked_.begin(), asked_.end(), from) == 1),
      "a call is committed to a worker that has it");
  const call_try newest = is_sending_ ? sending_ : asked_.back();
  if (was_asked_again_ && from == newest) core_->note_answered_by_another();
  std::erase(asked_, from);
  cancel_asked();
  if (is_queued_) core_->forget(*this);
  if (is_sending_ && sending_ == from) return;
  if (is_sending_) withdraw();
  asked_.push_back(from);
}

bool call_state::is_wanted(const call_try& t) const noexcept {
  if (is_over_ || (is_sending_ && is_unwanted_ && sending_ == t)) return false;
  return !is_committed_ || (asked_.empty() ? sending_ : asked_.front()) == t;
}

void call_state::drop(call_try t) noexcept {
  if (sending_ == t) sending_ = call_try();
}

void call_state::end(call_try from, failure f) noexcept {
  // It was given up meanwhile, by a cause that stays.
  if (is_over_) return;
  commit_to(from);
  std::erase(asked_, from);
  if (sending_ == from) sending_ = call_try();
  finish(std::move(f));
}

void call_state::give_back(call_try from) noexcept {
  MW_ASSERT(!is_committed_ && replies_.came() == 0,
            "a call that was begun is not given back");
  take_back_try();
  std::erase(asked_, from);
  if (sending_ == from) sending_ = call_try();
  go_on_without(failure());
}

void call_state::lose(const client_session& session, const failure& why) noexcept {
  if (sending_.session == &session) sending_ = call_try();
  std::erase_if(asked_, [&](const call_try& t) { return t.session == &session; });
  go_on_without(why);
}

void call_state::go_on_without(const failure& why) noexcept {
  if (is_over_ || is_queued_) return;
  if (has_try()) {
    wants_another_ = false;
    return;
  }
  // Its worker may have given up replies before they came: another worker begins anew.
  if (replies_.came() == 0) {
    is_committed_ = false;
    replies_.forget_costs();
  }
  if (replies_.came() == 0 && (!why || tries_ < core_->options().tries)) {
    // While it is being sent, `send_request` queues it at its end.
    if (!is_sending_) core_->queue_again(*this);
    return;
  }
  failure f = why;
  if (replies_.came() == 0) {
    const std::string told =
        fmt::format("the last of {} workers that were asked", tries_);
    f.detail = f.detail.empty() ? told : f.detail + "; " + told;
  }
  finish(std::move(f));
}

// --- otherwise

void call_state::give_up(failure f) noexcept {
  if (is_over_) return;
  if (is_queued_) core_->forget(*this);
  // While its request is being sent the slot stays with the sender, which knows whether
  // the worker has got it.
  if (is_sending_) withdraw();
  cancel_asked();
  finish(std::move(f));
}

void call_state::limit_reached(cause why) noexcept {
  give_up(failure(why, why == cause::timed_out ? "the time of the call has passed" : ""));
}

void call_state::give_up(std::exception_ptr error) noexcept {
  error_ = std::move(error);
  give_up(failure(cause::cancelled, "the call's pick threw an exception"));
}

void call_state::finish(failure f) noexcept {
  MW_ASSERT(!is_over_, "law 1: a call ends once");
  MW_ASSERT(!is_queued_ && asked_.empty(), "no worker has or gets a call that is over");
  is_over_ = true;
  core_->note_end(f);
  failure_ = f ? describe(std::move(f)) : std::move(f);
  deadline_.end();
  note_change();
  if (!reader_) return;
  next_reply_awaiter& reader = *std::exchange(reader_, nullptr);
  reader.finish(std::nullopt, failure_);
}

failure call_state::describe(failure f) const {
  f.operation = operation_kind::call;
  const bool is_of_its_time = f.cause == cause::timed_out ||
                              f.cause == cause::cancelled ||
                              f.cause == cause::invalid_argument;
  if (f.world.empty() && is_of_its_time) {
    // This is not the world's own failure, after which `keep` would form it again.
    f.world = worker_.world;
    f.epoch = worker_.epoch;
    f.rank = worker_.rank;
    f.peer = worker_.peer;
  }
  f.call = core_->name_of_call(number_);
  if (replies_.came() > 0 && !call_wire::is_handlers_own(f.cause)) {
    if (!f.detail.empty()) f.detail += "; ";
    f.detail += fmt::format("{} {} of the call had come", replies_.came(),
                            replies_.came() == 1 ? "reply" : "replies");
  }
  return f;
}

void call_state::push(bytes reply) {
  MW_ASSERT(is_committed_ && !is_over_,
            "replies come from the try that the call is committed to");
  MW_ASSERT(!reader_ || replies_.empty(), "a reader waits only when all was read");
  replies_.add(std::move(reply));
  if (!reader_) return note_change();
  next_reply_awaiter& reader = *std::exchange(reader_, nullptr);
  reader.finish(take_reply(), failure());
}

std::optional<bytes> call_state::take_reply() noexcept {
  std::optional<bytes> reply = replies_.take();
  if (reply) note_read();
  return reply;
}

void call_state::skip(std::uint64_t cost) noexcept {
  replies_.skip(cost);
  note_read();
}

void call_state::note_read() noexcept {
  // A committed call has no other try.
  const call_try& t = asked_.empty() ? sending_ : asked_.front();
  if (is_committed_ && t) t.session->note_read(t.slot);
}

void call_state::note_change() noexcept {
  changed_.set();
  changed_.reset();
}

}  // namespace manyworlds::inline v0::detail
