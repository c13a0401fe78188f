#include "dispatch_core.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "manyworlds/world/runtime_core.hpp"
#include "worker_link.hpp"

namespace manyworlds::inline v0 {

namespace {

/// Looked at only while calls wait for a suspicion to end: cheaper than a subscriber of
/// events for each worker that has none.
constexpr duration look_at_suspects = std::chrono::milliseconds(100);

/// What users' picks are asked from one look at the timer to the next: all that wait may
/// refuse all workers, and a turn may bring news of all of them.
constexpr int most_picks = 256;
/// Enough not to be due in the turn in which it is armed.
constexpr duration next_turn = std::chrono::nanoseconds(1);

}  // namespace

dispatch_core::dispatch_core(dispatch_options options) noexcept
    : timer([](timer& t) noexcept {
        auto& self = static_cast<dispatch_core&>(t);
        self.picks_ = 0;
        self.end_lonely();
        if (self.to_offer_ > 0) {
          self.go_on_offering();
        } else {
          self.distribute();
        }
        // Of those that came later.
        self.set_timer();
      }),
      options_(options) {}

dispatch_core::~dispatch_core() = default;

executor& dispatch_core::enter() {
  executor* const here = executor::current();
  if (!here) throw std::logic_error("a dispatcher is used from tasks");
  if (!home_) home_ = here;
  if (home_ != here) {
    throw world_error(failure(cause::invalid_argument,
                              "a dispatcher is used from tasks of one reactor"));
  }
  return *home_;
}

std::uint64_t dispatch_core::wire_id(const call_record& c, world& w) {
  // Others, and this process in an earlier life, count from elsewhere.
  if (first_wire_id_ == 0) first_wire_id_ = w.core()->runtime().random_word() | 1;
  return first_wire_id_ + c.number();
}

// --- calls

void dispatch_core::admit(call_record& c) {
  if (is_closed_) throw world_error(nobody_left());
  if (queue_.empty()) {
    look_at_candidates();
    if (offer(c)) return;
    if (is_closed_) throw world_error(nobody_left());
  }
  if (is_alone() && options_.patience <= duration::zero())
    throw world_error(nobody_left());
  if (queue_.size() >= options_.queue) {
    throw world_error(
        failure(cause::overloaded,
                fmt::format("{} calls wait already for {} workers: try later, or raise "
                            "dispatch_options::queue",
                            queue_.size(), links_.size())));
  }
  const bool is_first = queue_.empty();
  enqueue(c);
  // The first was offered above.
  if (!is_first) distribute();
}

void dispatch_core::queue_again(call_record& c) {
  c.set_queued();
  enqueue(c);
  if (is_closed_) return c.give_up(nobody_left());
  end_lonely();
  distribute();
}

void dispatch_core::enqueue(call_record& c) {
  queue_.emplace(c.number(), &c);
  c.alone_since = is_alone() ? home_->now() : time_point::max();
  // Nothing is due earlier because of it.
  if (!is_armed()) set_timer();
}

void dispatch_core::forget(call_record& c) noexcept {
  queue_.erase(c.number());
  if (!queue_.empty()) return;
  to_offer_ = 0;
  // The reactor may be gone before this is.
  if (is_armed()) home_->timers().disarm(*this);
}

bool dispatch_core::offer(call_record& c) {
  if (!has_room()) return false;
  const std::optional<std::size_t> chosen = c.pick()(shown_);
  // It may have destroyed the dispatcher.
  if (!chosen || is_closed_) return false;
  if (*chosen >= shown_.size()) {
    throw world_error(
        failure(cause::invalid_argument,
                fmt::format("pick chose worker {} of {}", *chosen, shown_.size())));
  }
  worker_link& link = *candidates_[*chosen];
  if (!link.has_room()) return false;
  link.assign(c);
  shown_[*chosen] = link.status();
  return true;
}

void dispatch_core::distribute() noexcept {
  if (queue_.empty()) return;
  const bool goes_on = to_offer_ > 0;
  to_offer_ = queue_.size();
  if (!goes_on) go_on_offering();
}

void dispatch_core::go_on_offering() noexcept {
  // A pick may come back here.
  if (std::exchange(is_distributing_, true)) return;
  look_at_candidates();
  const bool had_room = has_room();
  for (; to_offer_ > 0 && has_room() && picks_ < most_picks; ++picks_) {
    // By its number: a pick may have ended any of them.
    auto at = queue_.lower_bound(next_offered_);
    if (at == queue_.end()) at = queue_.begin();
    call_record& c = *at->second;
    next_offered_ = c.number() + 1;
    --to_offer_;
    try {
      if (offer(c)) forget(c);
    } catch (...) {
      c.give_up(std::current_exception());
    }
  }
  if (!has_room()) to_offer_ = 0;
  if (to_offer_ == 0) next_offered_ = 0;
  is_distributing_ = false;
  if (had_room) set_timer();
}

// --- workers

void dispatch_core::look_at_candidates() {
  shown_.clear();
  candidates_.clear();
  for (worker_link* link : links_) {
    if (!link->is_member()) continue;
    candidates_.push_back(link);
    shown_.push_back(link->status());
  }
}

bool dispatch_core::has_room() const noexcept {
  return std::any_of(candidates_.begin(), candidates_.end(),
                     [](const worker_link* l) { return l->has_room(); });
}

bool dispatch_core::is_alone() const noexcept {
  return std::none_of(links_.begin(), links_.end(),
                      [](const worker_link* l) { return l->is_member(); });
}

bool dispatch_core::waits_for_suspects() const noexcept {
  return std::any_of(links_.begin(), links_.end(), [](const worker_link* l) {
    return l->has_room() && l->in().is_suspect(l->peer());
  });
}

void dispatch_core::remove(worker_link& link) noexcept {
  std::erase(links_, &link);
  const failure why = link.end_cause();
  if (!link.is_draining()) last_loss_ = why.text();
  while (call_record* const c = link.take_any_call()) {
    if (c->at() == call_record::phase::over) {
      c->let_go_of_slot();
    } else if (c->is_lost(why, options_.tries) && c->at() == call_record::phase::asked) {
      // One whose request is still being sent queues itself when that has ended.
      queue_again(*c);
    }
  }
  note_membership();
}

worker_link* dispatch_core::find(worker_id id) const noexcept {
  const auto found = std::find_if(links_.begin(), links_.end(),
                                  [&](const worker_link* l) { return l->id() == id; });
  return found == links_.end() ? nullptr : *found;
}

std::vector<worker_status> dispatch_core::workers() const {
  std::vector<worker_status> all;
  for (const worker_link* link : links_) {
    if (link->is_ready()) all.push_back(link->status());
  }
  return all;
}

void dispatch_core::note_membership() noexcept {
  const bool alone = is_alone();
  for (auto& [number, c] : queue_) {
    if (!alone) {
      c->alone_since = time_point::max();
    } else if (c->alone_since == time_point::max()) {
      c->alone_since = home_->now();
    }
  }
  end_lonely();
  distribute();
  set_timer();
}

void dispatch_core::note_room() noexcept { distribute(); }

// --- waiting in vain

failure dispatch_core::nobody_left() const {
  if (is_closed_) return failure(cause::no_member_left, "the dispatcher was destroyed");
  std::string detail = fmt::format("no worker for {} ms",
                                   options_.patience / std::chrono::milliseconds(1));
  if (!last_loss_.empty()) detail += "; the last one: " + last_loss_;
  return failure(cause::no_member_left, std::move(detail));
}

void dispatch_core::end_lonely() noexcept {
  if (!is_alone()) return;
  const time_point now = home_->now();
  for (auto at = queue_.begin(); at != queue_.end();) {
    call_record& c = *at->second;
    ++at;
    if (c.alone_since != time_point::max() &&
        later(c.alone_since, options_.patience) <= now)
      c.give_up(nobody_left());
  }
}

void dispatch_core::set_timer() noexcept {
  time_point next = time_point::max();
  if (is_alone()) {
    for (const auto& [number, c] : queue_)
      next = std::min(next, later(c->alone_since, options_.patience));
  } else if (!queue_.empty() && waits_for_suspects()) {
    next = later(home_->now(), look_at_suspects);
    if (is_armed()) next = std::min(next, when());
  }
  if (to_offer_ > 0) next = std::min(next, later(home_->now(), next_turn));
  if (next != time_point::max()) {
    home_->timers().arm(*this, next);
  } else if (is_armed()) {
    home_->timers().disarm(*this);
  }
}

void dispatch_core::close() noexcept {
  is_closed_ = true;
  while (!queue_.empty()) queue_.begin()->second->give_up(nobody_left());
  for (worker_link* link : links_) {
    link->give_up_calls(nobody_left());
    link->stop();
  }
}

}  // namespace manyworlds::inline v0
