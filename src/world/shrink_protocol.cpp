#include "world/shrink_protocol.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "duration_text.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/notice.hpp"
#include "world/runtime_core.hpp"
#include "world/world_router.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// Returns whether another try, with any members, would end the same.
bool is_final(enum cause why) noexcept {
  switch (why) {
    case cause::runtime_stopped:
    case cause::forked:
    case cause::invalid_argument:
    case cause::unsupported:
    case cause::device_unavailable:
    case cause::device_busy:
    case cause::device_degraded:
      return true;
    default:
      return false;
  }
}

}  // namespace

shrink_protocol::shrink_protocol(std::shared_ptr<world_core> broken)
    : broken_(std::move(broken)),
      runtime_(broken_->runtime()),
      router_(runtime_.worlds()),
      service_(runtime_.service()),
      begun_(service_.now()),
      known_(broken_->successors()),
      base_(known_.base),
      votes_(known_.pending_votes),
      next_(known_.next),
      last_poll_(begun_) {
  MW_ASSERT(service_.is_current(), "a shrink protocol runs on the service reactor");
  MW_ASSERT(broken_->epoch() != 0 && broken_->drained().is_set(),
            "what is shrunk was formed and is drained");
  if (base_.members.empty()) base_ = broken_->view();
  is_listed_ = router_.begin(*this);
  // The records of the successors belong to the protocol that is listed.
  if (is_listed_) meet_survivors();
}

shrink_protocol::~shrink_protocol() {
  if (!is_listed_) return;
  router_.end(*this);
  // `next_` is kept: it may still be committed, and the next call must know.
  if (next_) next_->abandon();
}

std::uint64_t shrink_protocol::epoch_of(const world_view& base, rank_t proposer,
                                        std::uint64_t highest) noexcept {
  MW_ASSERT(proposer >= 0 && proposer < base.size(), "a member of the base proposes");
  const auto step = static_cast<std::uint64_t>(base.size());
  std::uint64_t epoch = base.epoch + 1 + static_cast<std::uint64_t>(proposer);
  if (epoch <= highest) epoch += (highest - epoch + step) / step * step;
  MW_ASSERT(epoch > highest && epoch > base.epoch, "epochs grow");
  return epoch;
}

task<std::shared_ptr<world_core>> shrink_protocol::run() {
  if (!is_listed_) {
    throw world_error(broken_->describe_failure(cause::invalid_argument, no_rank,
                                                operation_kind::form,
                                                "it is being shrunk already"));
  }
  // Checked on this thread: a call that succeeds calls `take_no_part` here.
  if (!broken_->may_take_part()) {
    throw world_error(
        broken_->describe_failure(cause::invalid_argument, no_rank, operation_kind::form,
                                  "this member forms another epoch, or has left"));
  }
  bool is_late = false;
  try {
    co_await within(agree(), broken_->options().form);
  } catch (const timed_out&) {
    is_late = true;
  }
  if (is_late) throw world_error(late());
  MW_ASSERT(next_ && next_->epoch() != 0, "a shrink protocol ends with a successor");
  broken_->take_no_part();
  known_.core = nullptr;
  co_return std::exchange(next_, nullptr);
}

task<void> shrink_protocol::agree() {
  auto heed_stop = [](notice& stopping, event& news) -> task<void> {
    co_await stopping.wait();
    news.set();
  };
  auto all = [this, heed_stop](scope& s) -> task<void> {
    scope_ = &s;
    s.spawn(heed_stop(runtime_.stopping(), news_));
    co_await decide();
    s.cancel();
  };
  co_await scope::run(all);
}

task<void> shrink_protocol::decide() {
  // An earlier call was given up in the middle of a try.
  if (next_) co_await conclude();
  for (;;) {
    poll_survivors();
    if (runtime_.refuses_worlds()) {
      throw world_error(broken_->describe_failure(cause::runtime_stopped, no_rank,
                                                  operation_kind::form,
                                                  "the runtime is stopping"));
    }
    if (verdict_) throw world_error(*verdict_);
    if (learned_) {
      const world_view successor = *std::exchange(learned_, std::nullopt);
      // The member that told it may be gone before the others have asked.
      router_.views().note_learned(broken_, base_.id, successor);
      begin_from(successor, nullptr);
      continue;
    }
    std::optional<world_view> view = std::exchange(offer_, std::nullopt);
    if (view && !may_join(*view)) {
      decline(*view);
      view.reset();
    }
    if (!view && lowest() == rank_ && is_complete() && may_go_on()) view = next_view();
    if (!view) {
      if (lowest() != rank_) {
        waiting_rank_ = lowest();
        waiting_for_ = "it has not proposed who goes on";
      }
      co_await next_news();
      continue;
    }
    if (co_await attempt(*view)) co_return;
    const failure why = next_->first_failure();
    // Once it is committed, the cause may be that of another member.
    const bool is_ours = next_->epoch() == 0;
    co_await conclude();
    last_trouble_ = why.detail;
    if (is_ours && is_final(why.cause)) throw world_error(why);
    runtime_.log(log_level::debug, fmt::format("{}: its survivors try again: {}",
                                               base_.name.view(), why.detail));
    for (survivor& s : survivors_) forget_call(s);
    co_await sleep_for(retry_pause + runtime_.jitter(retry_pause));
    call_all();
  }
}

task<void> shrink_protocol::next_news() {
  news_.reset();
  try {
    co_await within(news_.wait(), poll_interval);
  } catch (const timed_out&) {
    // Members become silent by time alone.
  }
}

void shrink_protocol::begin_from(world_view base, std::shared_ptr<world_core> core) {
  base_ = std::move(base);
  known_.core = std::move(core);
  votes_.clear();
  known_.has_more_pending_votes = false;
  offer_.reset();
  learned_.reset();
  meet_survivors();
}

void shrink_protocol::meet_survivors() {
  const world_core& known_by = known_.core ? *known_.core : *broken_;
  begun_ = service_.now();
  rank_ = base_.rank_of(runtime_.self().id);
  MW_ASSERT(rank_ != no_rank, "a survivor is a member of its base");
  waiting_rank_ = no_rank;
  survivors_.clear();
  survivors_.resize(base_.members.size());
  // A process that was stopped itself finds all others silent until it has listened for
  // a while.
  const time_point earliest =
      begun_ + 10 * poll_interval - broken_->options().broken_after;
  for (rank_t r = 0; r < base_.size(); ++r) {
    survivor& s = at(r);
    s.heard = earliest;
    const rank_t known = known_by.view().rank_of(base_.member(r).id);
    if (r == rank_ || known == no_rank) continue;
    const link& l = *known_by.members().links()[static_cast<std::size_t>(known)];
    s.last = known_by.members().links()[static_cast<std::size_t>(known)];
    s.heard = std::max(s.heard, l.last_heard());
    s.is_dead = l.has_seen_death() || known_by.members().has_left(known);
  }
}

std::uint64_t shrink_protocol::last_epoch() const {
  return std::min(router_.views().last_epoch(base_.name), base_.epoch + most_ahead);
}

world_view shrink_protocol::next_view() {
  std::uint64_t highest = std::max(base_.epoch, last_epoch());
  world_view view;
  view.name = base_.name;
  for (rank_t r = 0; r < base_.size(); ++r) {
    if (!takes_part(r)) continue;
    view.members.push_back(base_.member(r));
    highest = std::max(highest, at(r).last_epoch);
  }
  view.epoch = epoch_of(base_, rank_, highest);
  view.id = runtime_.random_word() | 1;
  return view;
}

task<bool> shrink_protocol::attempt(const world_view& view) {
  MW_ASSERT(!next_ && scope_, "a member is part of one try at a time");
  MW_ASSERT(view.rank_of(runtime_.self().id) != no_rank, "a member tries its own views");
  MW_ASSERT(view.epoch > base_.epoch, "a successor has a later epoch");
  router_.views().note_epoch(view.name, view.epoch);
  successor_view inherited;
  inherited.view = view;
  inherited.origin = base_.id;
  for (const process_address& m : view.members) {
    inherited.previous_ranks.push_back(broken_->view().rank_of(m.id));
  }
  inherited.home_rank = broken_->home_rank();
  inherited.home_size = broken_->home_size();
  world_options options = broken_->options();
  options.rank = view.rank_of(runtime_.self().id);
  options.size = view.size();
  // The vote is pending at once: this call may be given up, and its world dropped.
  if (options.rank != 0) vote_for(view);
  next_ = std::make_shared<world_core>(broken_->runtime_ptr(), broken_->rendezvous(),
                                       options, std::move(inherited));
  next_->begin_inheriting();
  if (options.rank == 0) {
    const bytes offer = encode(successor_message{base_.id, view});
    for (survivor& s : survivors_) {
      if (s.way && view.rank_of(s.way->peer().id) != no_rank) s.way->send(offer);
    }
  }
  auto wake = [](std::shared_ptr<world_core> core, event& news) -> task<void> {
    co_await core->decided().wait();
    news.set();
  };
  scope_->spawn(wake(next_, news_));
  while (!next_->decided().is_set()) {
    // The proposer does not blame itself.
    waiting_rank_ = options.rank == 0 ? no_rank : base_.rank_of(view.member(0).id);
    waiting_for_ = "its members did not connect to each other in time";
    co_await next_news();
    poll_survivors();
    give_up_on_lost(view);
    if (is_overtaken(view)) {
      next_->break_with(
          next_->describe_failure(cause::abandoned, no_rank, operation_kind::form,
                                  "there is later news than this proposal"));
    }
  }
  co_return next_->state() != world_state::broken;
}

task<void> shrink_protocol::conclude() {
  MW_ASSERT(next_ && next_->inherits(), "a try that ends was begun");
  // It may be committed until then, also after it was broken here.
  co_await next_->drained().wait();
  const auto tried = std::exchange(next_, nullptr);
  const world_view& view = tried->inherits()->view;
  if (tried->epoch() != 0) {
    // Formed, and broken at once: perhaps no other member knows of that view.
    tried->take_no_part();
    begin_from(view, tried);
  }
}

void shrink_protocol::give_up_on_lost(const world_view& view) {
  for (rank_t r = 0; r < base_.size(); ++r) {
    const rank_t member = view.rank_of(base_.member(r).id);
    if (r == rank_ || member == no_rank || !(at(r).is_dead || is_silent(at(r)))) continue;
    next_->break_with(next_->describe_failure(
        at(r).is_dead ? cause::peer_died : cause::silent_peer, member,
        operation_kind::form,
        base_.member(r).text() + " was lost while the successor was formed"));
  }
}

bool shrink_protocol::is_overtaken(const world_view& view) const noexcept {
  // A member that proposes again has given up what it proposed before.
  return runtime_.refuses_worlds() || verdict_ || learned_ ||
         (offer_ && offer_->member(0).id == view.member(0).id);
}

failure shrink_protocol::late() const {
  const rank_t rank = waiting_rank_ == no_rank
                          ? no_rank
                          : broken_->view().rank_of(base_.member(waiting_rank_).id);
  return broken_->describe_failure(
      cause::not_joined, rank, operation_kind::form,
      fmt::format("not shrunk within {}: {}{}{}", duration_text(broken_->options().form),
                  waiting_for_,
                  last_trouble_.empty() ? "" : "; the last try failed: ", last_trouble_));
}

// --- reached

void shrink_protocol::poll_survivors() {
  const time_point now = service_.now();
  // A member that was late itself has not listened, and calls no other silent.
  if (now - std::exchange(last_poll_, now) > 5 * poll_interval) awake_since_ = now;
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
    } else if (s.way && !s.has_called && now - s.asked >= poll_interval) {
      call(s, true);
    }
  }
}

task<void> shrink_protocol::seek(std::uint64_t base, rank_t rank) {
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

void shrink_protocol::call(survivor& s, bool asks) {
  if (!s.way || !s.way->is_up()) return;
  survivor_message message;
  message.name = base_.name;
  message.epoch = base_.epoch;
  message.base = base_.id;
  message.last_epoch = last_epoch();
  message.asks = asks;
  message.pending_votes = votes_;
  s.way->send(encode(message));
  if (asks) s.asked = service_.now();
}

void shrink_protocol::forget_call(survivor& s) noexcept {
  if (std::exchange(s.has_called, false)) s.wanted = service_.now();
}

void shrink_protocol::decline(const world_view& view) {
  survivor& proposer = at(base_.rank_of(view.member(0).id));
  if (!proposer.way || !proposer.way->is_up()) return;
  proposer.way->send(encode(broken_message{view.id, cause::abandoned, no_rank,
                                           "a member may be part of another world"}));
  // The call brings the votes that it did not know when it proposed.
  call(proposer, true);
}

void shrink_protocol::call_all() {
  for (survivor& s : survivors_) call(s, true);
}

// --- asked

void shrink_protocol::take(const std::shared_ptr<link>& from,
                           const control_message& message) {
  const rank_t rank = base_.rank_of(from->peer().id);
  // Only members speak for a view.
  if (rank == no_rank || rank == rank_) return;
  survivor& s = at(rank);
  if (!s.way || !s.way->is_up()) s.way = link_hold(from);
  if (const auto* called = std::get_if<survivor_message>(&message)) {
    take_call(s, *called);
  } else if (const auto* status = std::get_if<status_message>(&message)) {
    take_status(rank, *status);
  } else if (const auto* offer = std::get_if<successor_message>(&message)) {
    const bool is_proposer =
        is_successor(offer->view) && offer->view.rank_of(from->peer().id) == 0;
    if (is_proposer) offer_ = offer->view;
  }
  news_.set();
}

void shrink_protocol::take_call(survivor& s, const survivor_message& message) {
  if (message.last_epoch > base_.epoch + most_ahead) throw wire_error("no such epoch");
  s.is_dead = false;
  s.has_called = true;
  s.last_epoch = message.last_epoch;
  for (const std::vector<rank_t>& ranks : message.pending_votes) {
    if (ranks.back() < base_.size()) add_vote(ranks);
  }
  if (message.asks) call(s, false);
}

void shrink_protocol::take_status(rank_t from, const status_message& message) {
  switch (message.status) {
    case member_status::no_part:
      at(from).is_dead = true;
      at(from).has_called = false;
      for (const std::vector<rank_t>& ranks : message.pending_votes) {
        if (ranks.back() < base_.size()) keep_vote(ranks);
      }
      return;
    case member_status::gone_on: {
      const rank_t known = broken_->view().rank_of(base_.member(from).id);
      verdict_ = broken_->describe_failure(
          cause::expelled, known, operation_kind::form,
          fmt::format("it is in epoch {}; form the world again to take part in the next",
                      message.epoch));
      return;
    }
    case member_status::succeeded:
      if (is_successor(message.view) &&
          message.view.rank_of(base_.member(from).id) != no_rank) {
        learned_ = message.view;
      }
      return;
  }
}

bool shrink_protocol::is_successor(const world_view& view) const noexcept {
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

void shrink_protocol::overhear(const control_message& message,
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

bool shrink_protocol::is_silent(const survivor& s) const noexcept {
  return service_.now() - std::max(s.heard, awake_since_) >=
         broken_->options().broken_after;
}

bool shrink_protocol::takes_part(rank_t rank) const noexcept {
  MW_ASSERT(rank >= 0 && rank < base_.size(), "a survivor has a rank in the base");
  const survivor& s = survivors_[static_cast<std::size_t>(rank)];
  MW_ASSERT(!s.has_called || s.way, "a survivor calls over a link that is kept");
  return rank == rank_ || (s.has_called && !s.is_dead && s.way->is_up() && !is_silent(s));
}

rank_t shrink_protocol::lowest() const noexcept {
  rank_t r = 0;
  while (!takes_part(r)) ++r;
  return r;
}

bool shrink_protocol::is_complete() {
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

bool shrink_protocol::may_go_on() {
  if (known_.has_more_pending_votes) {
    waiting_rank_ = no_rank;
    waiting_for_ = "too many tries ended without a word whether they succeeded";
    return false;
  }
  std::vector<rank_t> everyone(base_.members.size());
  std::iota(everyone.begin(), everyone.end(), 0);
  std::vector<bool> here;
  for (const rank_t r : everyone) here.push_back(takes_part(r));
  const bool may = has_quorum(everyone, here) && has_quorum_in_votes(here);
  if (!may) {
    waiting_for_ = fmt::format(
        "{} may live and go on with others, and those here are no majority: if it hangs, "
        "end it",
        base_.member(waiting_rank_).text());
  }
  return may;
}

bool shrink_protocol::may_join(const world_view& view) {
  std::vector<bool> here(base_.members.size());
  for (const process_address& m : view.members) {
    here[static_cast<std::size_t>(base_.rank_of(m.id))] = true;
  }
  return !known_.has_more_pending_votes && has_quorum_in_votes(here);
}

bool shrink_protocol::has_quorum_in_votes(const std::vector<bool>& here) {
  return std::all_of(votes_.begin(), votes_.end(), [&](const auto& ranks) {
    return here[static_cast<std::size_t>(ranks.front())] || has_quorum(ranks, here);
  });
}

bool shrink_protocol::has_quorum(const std::vector<rank_t>& among,
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

void shrink_protocol::vote_for(const world_view& view) {
  std::vector<rank_t> ranks;
  for (const process_address& m : view.members) ranks.push_back(base_.rank_of(m.id));
  keep_vote(std::move(ranks));
}

void shrink_protocol::keep_vote(std::vector<rank_t> ranks) {
  known_.has_more_pending_votes |=
      votes_.size() == survivor_message::most_pending_votes &&
      std::find(votes_.begin(), votes_.end(), ranks) == votes_.end();
  add_vote(std::move(ranks));
  router_.views().note_votes(base_, known_);
}

void shrink_protocol::add_vote(std::vector<rank_t> ranks) {
  MW_ASSERT(!ranks.empty() && ranks.front() >= 0 && ranks.back() < base_.size(),
            "a view that was voted for has members of the base");
  MW_ASSERT(votes_.size() <= survivor_message::most_pending_votes,
            "no more votes are kept than can be told");
  if (std::find(votes_.begin(), votes_.end(), ranks) != votes_.end()) return;
  if (votes_.size() < survivor_message::most_pending_votes)
    votes_.push_back(std::move(ranks));
}

}  // namespace manyworlds::inline v0::detail
