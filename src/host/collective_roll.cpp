#include "collective_roll.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace manyworlds::inline v0::host {

namespace {

// Later than this, a timer says more about us than about the others.
constexpr duration lateness_limit = std::chrono::seconds(1);
constexpr duration longest_period = std::chrono::milliseconds(500);
constexpr duration shortest_period = std::chrono::milliseconds(1);

}  // namespace

collective_roll::collective_roll(core& shared, roll_events& told)
    : core_(shared),
      told_(told),
      entered_by_(static_cast<std::size_t>(shared.size), 0),
      may_ask_at_(static_cast<std::size_t>(shared.size), time_point::min()) {}

collective_signature collective_roll::said(std::uint64_t number) const noexcept {
  const bool known = number <= entered_ && number + remembered > entered_;
  return known ? signatures_[number % remembered] : collective_signature();
}

bool collective_roll::enter(collective_signature s) {
  ++entered_;
  signatures_[entered_ % remembered] = s;
  for (const refusal& r : refusals_) {
    if (r.number != entered_) continue;
    disagree_about(r);
    return false;
  }
  return true;
}

void collective_roll::disagree_about(const refusal& r) {
  told_.disagree(r.rank, fmt::format("rank {} could not enter {}, which rank {} entered",
                                     r.rank, r.signature.text(r.signature), core_.self));
}

void collective_roll::refuse(collective_signature s) {
  ++entered_;
  signatures_[entered_ % remembered] = s;
  std::erase_if(refusals_, [this](const refusal& r) { return r.number == entered_; });
  own_refusals_.push_back(entered_);
  if (own_refusals_.size() > most_refusals) own_refusals_.pop_front();
  frame f;
  f.kind = frame_kind::refuse;
  f.generation = refuse_arguments;
  f.id = entered_;
  f.word = s.word();
  for (rank_t rank = 0; rank < core_.size; ++rank) {
    if (rank != core_.self) told_.tell(rank, f);
  }
}

void collective_roll::tell_closed(std::uint64_t number, rank_t culprit) {
  frame f;
  f.kind = frame_kind::refuse;
  f.generation = refuse_closed;
  f.id = number;
  f.on = static_cast<std::uint64_t>(culprit);
  for (rank_t rank = 0; rank < core_.size; ++rank) {
    if (rank != core_.self && rank != culprit) told_.tell(rank, f);
  }
}

const char* collective_roll::handle(rank_t peer, const frame& f) {
  switch (f.kind) {
    case frame_kind::ask:
      return on_ask(peer, f);
    case frame_kind::entered:
      return on_entered(peer, f);
    case frame_kind::refuse:
      return on_refuse(peer, f);
    default:
      return "a frame that does not belong here";
  }
}

const char* collective_roll::on_ask(rank_t peer, const frame& f) {
  time_point& may_ask_at = may_ask_at_[static_cast<std::size_t>(peer)];
  const time_point now = core_.home.now();
  if (now < may_ask_at) return nullptr;
  may_ask_at = now + between_answers;
  frame answer;
  answer.kind = frame_kind::entered;
  answer.id = f.id;
  answer.bytes = entered_;
  answer.word = said(f.id).word();
  told_.tell(peer, answer);
  compare(peer, f.id, collective_signature(f.word));
  return nullptr;
}

const char* collective_roll::on_entered(rank_t peer, const frame& f) {
  if (f.id > entered_) return "an answer that was not asked for";
  std::uint64_t& known = entered_by_[static_cast<std::size_t>(peer)];
  known = std::max(known, f.bytes);
  compare(peer, f.id, collective_signature(f.word));
  return nullptr;
}

// One that either has refused, or forgotten, agrees with everything.
void collective_roll::compare(rank_t peer, std::uint64_t number,
                              collective_signature theirs) {
  const collective_signature ours = said(number);
  if (ours.word() == 0 || theirs.word() == 0 || ours.agrees_with(theirs)) return;
  if (std::find(own_refusals_.begin(), own_refusals_.end(), number) !=
      own_refusals_.end()) {
    return;
  }
  told_.disagree(peer, fmt::format("rank {} entered {}, rank {} {}", core_.self,
                                   ours.text(theirs), peer, theirs.text(ours)));
}

const char* collective_roll::on_refuse(rank_t peer, const frame& f) {
  if (f.generation == refuse_closed) {
    if (f.on >= static_cast<std::uint64_t>(core_.size)) {
      return "a rank outside of the world";
    }
    told_.closed_from(f.id, static_cast<rank_t>(f.on));
    return nullptr;
  }
  const auto own = std::find(own_refusals_.begin(), own_refusals_.end(), f.id);
  if (own != own_refusals_.end()) return nullptr;
  const refusal r{peer, f.id, collective_signature(f.word)};
  if (f.id <= entered_) {
    disagree_about(r);
    return nullptr;
  }
  if (refusals_.size() >= most_refusals) return "more refusals than may be unanswered";
  refusals_.push_back(r);
  return nullptr;
}

duration collective_roll::period() const noexcept {
  return std::clamp(core_.options.collective_log / 10, shortest_period, longest_period);
}

void collective_roll::begin(std::uint64_t number, operation_kind kind) noexcept {
  number_ = number;
  kind_ = kind;
  since_ = core_.home.recently();
  asked_ = false;
  remarked_ = false;
  if (core_.size < 2 || timer_.is_armed()) return;
  // Armed at most once a period, however many collectives pass meanwhile. What this turn
  // has taken so far shows in no lateness of a timer that is armed only now.
  since_ = core_.home.now();
  look_later();
}

void collective_roll::look_later() {
  core_.home.timers().arm(timer_, core_.home.now() + period());
}

std::vector<rank_t> collective_roll::absent() const {
  std::vector<rank_t> ranks;
  for (rank_t rank = 0; rank < core_.size; ++rank) {
    const bool is_in = entered_by_[static_cast<std::size_t>(rank)] >= number_;
    // Who has left in order had done its part, or the collective would be closed.
    if (rank != core_.self && !is_in && !told_.has_left(rank)) ranks.push_back(rank);
  }
  return ranks;
}

// All of them at first, also those that are known to be ahead: they may be ahead with
// something else.
void collective_roll::ask() {
  frame f;
  f.kind = frame_kind::ask;
  f.id = number_;
  f.word = said(number_).word();
  const std::vector<rank_t> missing = absent();
  for (rank_t rank = 0; rank < core_.size; ++rank) {
    const bool is_missing =
        std::find(missing.begin(), missing.end(), rank) != missing.end();
    if (rank != core_.self && (!asked_ || is_missing)) told_.tell(rank, f);
  }
  asked_ = true;
}

std::string collective_roll::waits_for(const std::vector<rank_t>& ranks) const {
  return fmt::format("{} {} waits for {} {}", name_of(kind_), number_,
                     ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

void collective_roll::look() noexcept {
  if (number_ == 0) return;
  const time_point now = core_.home.now();
  const duration late = now - timer_.when();
  if (late > lateness_limit) since_ += late;
  const duration waited = now - since_;
  if (waited >= period()) {
    const std::vector<rank_t> missing = absent();
    if (asked_ && missing.empty()) {
      // What takes long now is the work itself, which has limits of its own.
      if (waited < core_.options.collective_log) return look_later();
      return core_.events.remark(fmt::format(
          "{} {} is not done, and all are in: see dump()", name_of(kind_), number_));
    }
    if (asked_ && waited >= core_.options.collective_break) {
      return core_.events.must_break(missing.front(), cause::overdue, waits_for(missing));
    }
    if (asked_ && waited >= core_.options.collective_log && !remarked_) {
      remarked_ = true;
      core_.events.remark(waits_for(missing));
    }
    ask();
  }
  look_later();
}

}  // namespace manyworlds::inline v0::host
