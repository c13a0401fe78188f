// The survivors: how they are reached, asked and judged.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "world/agreement.hpp"
#include "world/runtime_core.hpp"
#include "world/world_router.hpp"

namespace manyworlds::inline v0::detail {

// --- reached

void agreement::look_around() {
  const time_point now = service_.now();
  // A member that was late itself has not listened, and calls no other silent.
  if (now - std::exchange(last_look_, now) > 5 * look) awake_since_ = now;
  for (rank_t r = 0; r < base_.size(); ++r) {
    survivor& s = at(r);
    if (r == rank_) continue;
    if (s.way && !s.way->is_up()) {
      s.is_dead |= s.way->has_seen_death();
      s.last = s.way.get();
      s.way = link_hold();
      // As far as this member knows, the proposer no longer takes part.
      if (offer_ && offer_->member(0).id == base_.member(r).id) offer_.reset();
      forget_call(s);
    }
    if (s.way) s.heard = std::max(s.heard, s.way->last_heard());
    if (s.is_dead) continue;
    if (!s.way && !s.is_sought) {
      s.is_sought = true;
      scope_->spawn(seek(base_.id, r));
    } else if (s.way && !s.has_called && now - s.asked >= look) {
      call(s, true);
    }
  }
}

task<void> agreement::seek(std::uint64_t base, rank_t rank) {
  // The base may have changed before this is begun.
  if (base != base_.id) co_return;
  const process_address who = base_.member(rank);
  const bool is_first = !std::exchange(at(rank).was_sought, true);
  link_hold way;
  bool is_refused = false;
  try {
    way = co_await runtime_.peers().reach(
        who, service_.now() + (is_first ? first_limit : answer_limit));
  } catch (const link_error& e) {
    is_refused = e.cause() == cause::peer_died;
  }
  if (!way) co_await sleep_for(retry_pause);
  if (base != base_.id) co_return;
  survivor& s = at(rank);
  s.is_sought = false;
  s.is_dead |= is_refused && s.last && s.last->was_ended_by_peer();
  if (way && !s.way) {
    s.way = std::move(way);
    call(s, true);
  }
  news_.set();
}

void agreement::call(survivor& s, bool asks) {
  if (!s.way || !s.way->is_up()) return;
  survivor_message message;
  message.name = base_.name;
  message.epoch = base_.epoch;
  message.base = base_.id;
  message.last_epoch = last_epoch();
  message.asks = asks;
  message.doubts = doubts_;
  s.way->send(encode(message));
  if (asks) s.asked = service_.now();
}

void agreement::forget_call(survivor& s) noexcept {
  if (std::exchange(s.has_called, false)) s.wanted = service_.now();
}

void agreement::decline(const world_view& view) {
  survivor& proposer = at(base_.rank_of(view.member(0).id));
  if (!proposer.way || !proposer.way->is_up()) return;
  proposer.way->send(encode(broken_message{view.id, cause::abandoned, no_rank,
                                           "a member may be part of another world"}));
  // The call brings the doubts that it did not know when it proposed.
  call(proposer, true);
}

void agreement::call_all() {
  for (survivor& s : survivors_) call(s, true);
}

// --- asked

void agreement::take(const std::shared_ptr<link>& from, const control_message& message) {
  const rank_t rank = base_.rank_of(from->peer().id);
  // Only members speak for a view.
  if (rank == no_rank || rank == rank_) return;
  survivor& s = at(rank);
  if (!s.way || !s.way->is_up()) s.way = link_hold(from);
  if (const auto* called = std::get_if<survivor_message>(&message)) {
    take_call(s, *called);
  } else if (const auto* standing = std::get_if<standing_message>(&message)) {
    take_standing(rank, *standing);
  } else if (const auto* offer = std::get_if<successor_message>(&message)) {
    const bool is_proposer =
        is_successor(offer->view) && offer->view.rank_of(from->peer().id) == 0;
    if (is_proposer) offer_ = offer->view;
  }
  news_.set();
}

void agreement::take_call(survivor& s, const survivor_message& message) {
  if (message.last_epoch > base_.epoch + most_ahead) throw wire_error("no such epoch");
  s.is_dead = false;
  s.has_called = true;
  s.last_epoch = message.last_epoch;
  for (const std::vector<rank_t>& ranks : message.doubts) {
    if (ranks.back() < base_.size()) add_doubt(ranks);
  }
  if (message.asks) call(s, false);
}

void agreement::take_standing(rank_t from, const standing_message& message) {
  switch (message.standing) {
    case survivor_standing::no_part:
      at(from).is_dead = true;
      at(from).has_called = false;
      for (const std::vector<rank_t>& ranks : message.doubts) {
        if (ranks.back() < base_.size()) keep_doubt(ranks);
      }
      return;
    case survivor_standing::gone_on: {
      const rank_t known = broken_->view().rank_of(base_.member(from).id);
      verdict_ = broken_->describe_failure(
          cause::expelled, known, operation_kind::form,
          fmt::format("it is in epoch {}; form the world again to take part in the next",
                      message.epoch));
      return;
    }
    case survivor_standing::succeeded:
      if (is_successor(message.view) &&
          message.view.rank_of(base_.member(from).id) != no_rank) {
        learned_ = message.view;
      }
      return;
  }
}

bool agreement::is_successor(const world_view& view) const noexcept {
  if (view.name != base_.name || view.epoch <= base_.epoch) return false;
  if (view.rank_of(base_.member(rank_).id) == no_rank) return false;
  rank_t last = no_rank;
  for (const process_address& m : view.members) {
    const rank_t r = base_.rank_of(m.id);
    if (r <= last) return false;
    last = r;
  }
  // The proposer's first one beyond the last that may be told.
  const std::uint64_t step = base_.members.size();
  if (view.epoch - base_.epoch > most_ahead + step) return false;
  return view.epoch == epoch_of(base_, base_.rank_of(view.member(0).id), view.epoch - 1);
}

void agreement::overhear(const control_message& message,
                         const incarnation& speaker) noexcept {
  if (!offer_) return;
  if (const auto* rolled = std::get_if<rollback_message>(&message)) {
    if (rolled->world_id == offer_->id && offer_->rank_of(speaker) == 0) offer_.reset();
  } else if (const auto* broken = std::get_if<broken_message>(&message)) {
    if (broken->world_id == offer_->id && offer_->rank_of(speaker) != no_rank)
      offer_.reset();
  }
}

// --- judged

bool agreement::is_silent(const survivor& s) const noexcept {
  return service_.now() - std::max(s.heard, awake_since_) >=
         broken_->options().broken_after;
}

bool agreement::takes_part(rank_t rank) const noexcept {
  MW_ASSERT(rank >= 0 && rank < base_.size(), "a survivor has a rank in the base");
  const survivor& s = survivors_[static_cast<std::size_t>(rank)];
  MW_ASSERT(!s.has_called || s.way, "a survivor calls over a link that is kept");
  return rank == rank_ || (s.has_called && !s.is_dead && s.way->is_up() && !is_silent(s));
}

rank_t agreement::lowest() const noexcept {
  rank_t r = 0;
  while (!takes_part(r)) ++r;
  return r;
}

bool agreement::is_complete() {
  const time_point now = service_.now();
  const bool was_patient = now - begun_ >= broken_->options().form / 2;
  for (rank_t r = 0; r < base_.size(); ++r) {
    const survivor& s = at(r);
    if (takes_part(r) || s.is_dead || is_silent(s)) continue;
    waiting_rank_ = r;
    waiting_for_ =
        fmt::format("{} lives and has not called shrink()", base_.member(r).text());
    // A member that has called before is about to call again.
    if (!was_patient || now - s.wanted < answer_limit) return false;
  }
  return true;
}

bool agreement::may_go_on() {
  if (known_.has_more_doubts) {
    waiting_rank_ = no_rank;
    waiting_for_ = "too many tries ended without a word whether they succeeded";
    return false;
  }
  std::vector<rank_t> everyone(base_.members.size());
  std::iota(everyone.begin(), everyone.end(), 0);
  std::vector<bool> here;
  for (const rank_t r : everyone) here.push_back(takes_part(r));
  const bool may = outweighs(everyone, here) && is_beyond_doubt(here);
  if (!may) {
    waiting_for_ = fmt::format(
        "{} may live and go on with others, and those here are no majority: if it hangs, "
        "end it",
        base_.member(waiting_rank_).text());
  }
  return may;
}

bool agreement::may_join(const world_view& view) {
  std::vector<bool> here(base_.members.size());
  for (const process_address& m : view.members) {
    here[static_cast<std::size_t>(base_.rank_of(m.id))] = true;
  }
  return !known_.has_more_doubts && is_beyond_doubt(here);
}

bool agreement::is_beyond_doubt(const std::vector<bool>& here) {
  return std::all_of(doubts_.begin(), doubts_.end(), [&](const auto& ranks) {
    return here[static_cast<std::size_t>(ranks.front())] || outweighs(ranks, here);
  });
}

bool agreement::outweighs(const std::vector<rank_t>& among,
                          const std::vector<bool>& here) {
  MW_ASSERT(here.size() == base_.members.size() && !among.empty(),
            "members are weighed by their rank in the base");
  int margin = 0;
  bool has_lowest = true;
  bool is_lowest = true;
  for (const rank_t r : among) {
    const bool is_here = here[static_cast<std::size_t>(r)];
    if (!is_here && at(r).is_dead) continue;
    if (std::exchange(is_lowest, false)) has_lowest = is_here;
    if (!is_here) waiting_rank_ = r;
    margin += is_here ? 1 : -1;
  }
  return margin > 0 || (margin == 0 && has_lowest);
}

void agreement::doubt(const world_view& view) {
  std::vector<rank_t> ranks;
  for (const process_address& m : view.members) ranks.push_back(base_.rank_of(m.id));
  keep_doubt(std::move(ranks));
}

void agreement::keep_doubt(std::vector<rank_t> ranks) {
  known_.has_more_doubts |=
      doubts_.size() == survivor_message::most_doubts &&
      std::find(doubts_.begin(), doubts_.end(), ranks) == doubts_.end();
  add_doubt(std::move(ranks));
  router_.note_doubts(base_, known_);
}

void agreement::add_doubt(std::vector<rank_t> ranks) {
  MW_ASSERT(!ranks.empty() && ranks.front() >= 0 && ranks.back() < base_.size(),
            "a doubted view has members of the base");
  MW_ASSERT(doubts_.size() <= survivor_message::most_doubts,
            "no more doubts are kept than can be told");
  if (std::find(doubts_.begin(), doubts_.end(), ranks) != doubts_.end()) return;
  if (doubts_.size() < survivor_message::most_doubts) doubts_.push_back(std::move(ranks));
}

}  // namespace manyworlds::inline v0::detail
