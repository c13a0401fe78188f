#include "host/collective_tracker.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "host/collectives.hpp"
#include "host/host_backend.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::host {

namespace {

// A timer that is later than this says more about this member than about the others.
constexpr duration lateness_limit = std::chrono::seconds(1);
constexpr duration longest_period = std::chrono::milliseconds(500);
constexpr duration shortest_period = std::chrono::milliseconds(1);
// A member that runs no user code answers in a turn.
constexpr duration answer_limit = std::chrono::milliseconds(100);

}  // namespace

collective_tracker::collective_tracker(core& shared, collectives& owner)
    : core_(shared),
      owner_(owner),
      entered_by_(static_cast<std::size_t>(shared.size), 0),
      may_ask_at_(static_cast<std::size_t>(shared.size), time_point::min()) {}

const collective_tracker::entered* collective_tracker::find(
    std::uint64_t number) const noexcept {
  const bool known = number > 0 && number <= entered_ && number + remembered > entered_;
  return known ? &said_[number % remembered] : nullptr;
}

collective_signature collective_tracker::said(std::uint64_t number) const noexcept {
  const entered* const known = find(number);
  return known ? known->signature : collective_signature();
}

bool collective_tracker::has_refused(std::uint64_t number) const noexcept {
  return std::find(own_refusals_.begin(), own_refusals_.end(), number) !=
         own_refusals_.end();
}

collective_place collective_tracker::place_of(rank_t rank, std::uint64_t number) const {
  if (rank == core_.self) {
    const entered* const known = find(number);
    return known ? collective_place(known->where) : collective_place();
  }
  const auto told = places_.find(rank);
  if (told == places_.end() || told->second.number != number) return {};
  return told->second.where;
}

void collective_tracker::tell_place(rank_t peer, std::uint64_t number) {
  const collective_place where = place_of(core_.self, number);
  if (where.is_known()) core_.backend.tell(peer, where.to_frame(number));
}

bool collective_tracker::enter(collective_signature s, source_position where) {
  ++entered_;
  said_[entered_ % remembered] = {s, where};
  for (const refusal& r : refusals_) {
    if (r.number != entered_) continue;
    disagree_about(r);
    return false;
  }
  return true;
}

void collective_tracker::disagree_about(const refusal& r) {
  const collective_signature ours = said(r.number);
  const std::string entered =
      ours.word() == 0 ? fmt::format("rank {} has passed {}", core_.self, r.number)
                       : fmt::format("rank {} entered {}{}", core_.self, ours.text(ours),
                                     place_of(core_.self, r.number).text());
  owner_.disagree(
      r.rank,
      fmt::format("{}, rank {} could not enter {}{}: its own arguments are "
                  "wrong, see its error",
                  entered, r.rank, r.signature.text(r.signature), r.where.text()));
}

void collective_tracker::refuse(collective_signature s, source_position where) {
  ++entered_;
  said_[entered_ % remembered] = {s, where};
  std::erase_if(refusals_, [this](const refusal& r) { return r.number == entered_; });
  own_refusals_.push_back(entered_);
  if (own_refusals_.size() > most_refusals) own_refusals_.pop_front();
  frame f;
  f.kind = frame_kind::refuse;
  f.generation = refuse_arguments;
  f.id = entered_;
  f.word = s.word();
  for (rank_t rank = 0; rank < core_.size; ++rank) {
    if (rank == core_.self) continue;
    tell_place(rank, entered_);
    core_.backend.tell(rank, f);
  }
}

void collective_tracker::tell_closed(std::uint64_t number, rank_t culprit) {
  frame f;
  f.kind = frame_kind::refuse;
  f.generation = refuse_closed;
  f.id = number;
  f.on = static_cast<std::uint64_t>(culprit);
  for (rank_t rank = 0; rank < core_.size; ++rank) {
    if (rank != core_.self && rank != culprit) core_.backend.tell(rank, f);
  }
}

const char* collective_tracker::handle(rank_t peer, const frame& f) {
  MW_ASSERT(peer >= 0 && peer < core_.size && peer != core_.self,
            "frames come from peers");
  switch (f.kind) {
    case frame_kind::ask:
      return on_ask(peer, f);
    case frame_kind::entered:
      return on_entered(peer, f);
    case frame_kind::refuse:
      return on_refuse(peer, f);
    case frame_kind::place:
      places_[peer] = {f.id, collective_place(f)};
      return nullptr;
    default:
      return "a frame of an unexpected kind";
  }
}

const char* collective_tracker::on_ask(rank_t peer, const frame& f) {
  time_point& may_ask_at = may_ask_at_[static_cast<std::size_t>(peer)];
  const time_point now = core_.home.now();
  // A peer that does not read the answers may ask again when it has (law 9).
  if (now < may_ask_at || core_.backend.is_backed_up(peer)) return nullptr;
  may_ask_at = now + between_answers;
  frame answer;
  answer.kind = frame_kind::entered;
  answer.id = f.id;
  answer.bytes = entered_;
  answer.word = said(f.id).word();
  tell_place(peer, f.id);
  core_.backend.tell(peer, answer);
  compare(peer, f.id, collective_signature(f.word));
  return nullptr;
}

const char* collective_tracker::on_entered(rank_t peer, const frame& f) {
  if (f.id > entered_) return "an answer that was not asked for";
  std::uint64_t& known = entered_by_[static_cast<std::size_t>(peer)];
  known = std::max(known, f.bytes);
  if (dispute_ && dispute_->peer == peer && dispute_->number == f.id) {
    const collective_signature theirs(f.word);
    // What it has entered under that number, if that differs; otherwise what its
    // message says.
    if (theirs.word() != 0 && !said(f.id).agrees_with(theirs)) dispute_->theirs = theirs;
    settle_now();
    return nullptr;
  }
  compare(peer, f.id, collective_signature(f.word));
  return nullptr;
}

// A member that has refused, or has forgotten, agrees with everything.
void collective_tracker::compare(rank_t peer, std::uint64_t number,
                                 collective_signature theirs) {
  const collective_signature ours = said(number);
  if (ours.word() == 0 || theirs.word() == 0 || ours.agrees_with(theirs)) return;
  if (has_refused(number)) return;
  owner_.disagree(peer, text_of({peer, number, theirs, {}}));
}

std::string collective_tracker::text_of(const contradiction& c) const {
  const collective_signature ours = said(c.number);
  const std::string here =
      ours.word() == 0
          ? fmt::format("rank {} has ended {} collectives", core_.self, c.number)
          : fmt::format("rank {} entered {}{}", core_.self, ours.text(c.theirs),
                        place_of(core_.self, c.number).text());
  return fmt::format("{}, rank {} {}{}{}", here, c.peer,
                     c.theirs.text(ours.word() == 0 ? c.theirs : ours),
                     place_of(c.peer, c.number).text(), c.more);
}

std::uint64_t collective_tracker::number_of(collective_signature s) const noexcept {
  const auto ahead = static_cast<std::int16_t>(
      static_cast<std::uint16_t>(s.sequence() - static_cast<std::uint16_t>(entered_)));
  return entered_ + static_cast<std::uint64_t>(std::int64_t{ahead});
}

bool collective_tracker::contradicts(collective_signature theirs, bool is_over) const {
  const std::uint64_t number = number_of(theirs);
  if (number > entered_ || has_refused(number)) return false;
  const collective_signature ours = said(number);
  return ours.word() == 0 ? is_over : !ours.agrees_with(theirs);
}

void collective_tracker::dispute(contradiction c) {
  if (dispute_) return;
  dispute_ = std::move(c);
  tell_ask(dispute_->peer, dispute_->number);
  if (core_.backend.has_left(dispute_->peer)) return settle_dispute();
  core_.home.timers().arm(dispute_timer_, core_.home.now() + answer_limit);
}

void collective_tracker::peer_left(rank_t peer) {
  if (dispute_ && dispute_->peer == peer) settle_now();
}

void collective_tracker::settle_dispute() {
  MW_ASSERT(dispute_.has_value(), "a dispute is settled that was raised");
  core_.home.timers().disarm(dispute_timer_);
  is_settled_ = true;
  owner_.disagree(dispute_->peer, text_of(*dispute_));
}

const char* collective_tracker::on_refuse(rank_t peer, const frame& f) {
  if (f.generation == refuse_closed) {
    if (f.on >= static_cast<std::uint64_t>(core_.size)) {
      return "a rank outside of the world";
    }
    owner_.closed_from(f.id, static_cast<rank_t>(f.on));
    return nullptr;
  }
  if (has_refused(f.id)) return nullptr;
  const refusal r{peer, f.id, collective_signature(f.word), place_of(peer, f.id)};
  if (f.id <= entered_) {
    disagree_about(r);
    return nullptr;
  }
  if (refusals_.size() >= most_refusals) return "more refusals than may be unanswered";
  refusals_.push_back(r);
  return nullptr;
}

// The others are asked at half of a deadline, so that it can name the absent.
duration collective_tracker::period() const noexcept {
  return std::clamp(std::min(core_.options.collective_log / 10, limit_ / 2),
                    shortest_period, longest_period);
}

void collective_tracker::begin(std::uint64_t number, operation_kind kind,
                               std::optional<duration> limit) noexcept {
  MW_ASSERT(number_ == 0, "one collective at a time");
  MW_ASSERT(number > 0 && number <= entered_, "a collective begins that was entered");
  number_ = number;
  kind_ = kind;
  since_ = core_.home.recently();
  asked_ = false;
  logged_ = false;
  limit_ = limit.value_or(duration::max());
  // Armed about once a period, however many collectives pass meanwhile: again only where
  // it comes too late for this one's deadline. `since_` may be as old as this turn.
  const duration in_time = period() + period() / 8;
  if (core_.size < 2 || (timer_.is_armed() && timer_.when() - since_ <= in_time)) return;
  // The time that this turn has taken so far does not count as lateness of the timer.
  since_ = core_.home.now();
  look_at(since_ + period());
}

void collective_tracker::look_at(time_point when) {
  core_.home.timers().arm(timer_, when);
}

std::vector<rank_t> collective_tracker::absent() const {
  std::vector<rank_t> ranks;
  for (rank_t rank = 0; rank < core_.size; ++rank) {
    const bool is_in = entered_by_[static_cast<std::size_t>(rank)] >= number_;
    // A member that has left in order had done its part, or the collective would be
    // closed.
    if (rank != core_.self && !is_in && !core_.backend.has_left(rank))
      ranks.push_back(rank);
  }
  return ranks;
}

// All of them at first, even those that are known to be ahead: they may be ahead with
// another collective.
void collective_tracker::ask() {
  const std::vector<rank_t> missing = absent();
  for (rank_t rank = 0; rank < core_.size; ++rank) {
    const bool is_missing =
        std::find(missing.begin(), missing.end(), rank) != missing.end();
    if (rank != core_.self && (!asked_ || is_missing)) tell_ask(rank, number_);
  }
  if (!std::exchange(asked_, true)) asked_at_ = core_.home.now();
}

void collective_tracker::tell_ask(rank_t peer, std::uint64_t number) {
  frame f;
  f.kind = frame_kind::ask;
  f.id = number;
  f.word = said(number).word();
  tell_place(peer, number);
  core_.backend.tell(peer, f);
}

collective_status collective_tracker::status() const {
  collective_status status;
  if (number_ == 0) return status;
  status.kind = kind_;
  status.number = number_;
  status.waited = core_.home.now() - since_;
  status.is_known =
      asked_ && core_.home.now() - asked_at_ >= std::min(answer_limit, period() / 2);
  if (status.is_known) status.absent = absent();
  return status;
}

void collective_tracker::look() noexcept {
  MW_ASSERT(core_.home.is_current(), "a timer expires in its reactor's turn");
  if (number_ == 0) return;
  const time_point now = core_.home.now();
  const duration late = now - timer_.when();
  if (late > lateness_limit) since_ += late;
  const duration waited = now - since_;
  // Armed for an earlier one.
  if (waited < period()) return look_at(since_ + period());
  const std::vector<rank_t> missing = absent();
  if (asked_ && missing.empty()) {
    // Only the work itself takes long now, and has its own limits.
    if (waited < core_.options.collective_log) return look_at(now + period());
    return core_.events.log(
        log_level::warning,
        fmt::format("{} {} is not done, although all members have entered it: see dump()",
                    name_of(kind_), number_));
  }
  if (asked_ && waited >= core_.options.collective_break) {
    return core_.events.must_break(missing.front(), cause::overdue,
                                   waits_for(kind_, number_, missing));
  }
  if (asked_ && waited >= core_.options.collective_log && !logged_) {
    logged_ = true;
    core_.events.log(log_level::warning, waits_for(kind_, number_, missing));
  }
  ask();
  look_at(now + period());
}

}  // namespace manyworlds::inline v0::detail::host
