// The results of an agreement: the next view, the world formed of it, or why not.
#include "world/agreement.hpp"

#include <fmt/format.h>

#include <algorithm>
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

agreement::agreement(std::shared_ptr<world_core> broken)
    : broken_(std::move(broken)),
      runtime_(broken_->runtime()),
      router_(runtime_.worlds()),
      service_(runtime_.service()),
      begun_(service_.now()),
      known_(broken_->successors()),
      base_(known_.base),
      doubts_(known_.doubts),
      next_(known_.next),
      last_look_(begun_) {
  MW_ASSERT(service_.is_current(), "an agreement lives on the service reactor");
  MW_ASSERT(broken_->epoch() != 0 && broken_->drained().is_set(),
            "what is shrunk was formed and is drained");
  if (base_.members.empty()) base_ = broken_->view();
  is_listed_ = router_.begin(*this);
  // The records of the successors belong to the agreement that is listed.
  if (is_listed_) meet_survivors();
}

agreement::~agreement() {
  if (!is_listed_) return;
  router_.end(*this);
  // `next_` is kept: it may still be committed, and the next call must know.
  if (next_) next_->abandon();
}

std::uint64_t agreement::epoch_of(const world_view& base, rank_t proposer,
                                  std::uint64_t highest) noexcept {
  MW_ASSERT(proposer >= 0 && proposer < base.size(), "a member of the base proposes");
  const auto step = static_cast<std::uint64_t>(base.size());
  std::uint64_t epoch = base.epoch + 1 + static_cast<std::uint64_t>(proposer);
  if (epoch <= highest) epoch += (highest - epoch + step) / step * step;
  MW_ASSERT(epoch > highest && epoch > base.epoch, "epochs grow");
  return epoch;
}

task<std::shared_ptr<world_core>> agreement::run() {
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
  MW_ASSERT(next_ && next_->epoch() != 0, "an agreement ends with a successor");
  broken_->take_no_part();
  known_.core = nullptr;
  co_return std::exchange(next_, nullptr);
}

task<void> agreement::agree() {
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

task<void> agreement::decide() {
  // An earlier call was given up in the middle of a try.
  if (next_) co_await conclude();
  for (;;) {
    look_around();
    if (runtime_.refuses_worlds()) {
      throw world_error(broken_->describe_failure(cause::runtime_stopped, no_rank,
                                                  operation_kind::form,
                                                  "the runtime is stopping"));
    }
    if (verdict_) throw world_error(*verdict_);
    if (learned_) {
      const world_view successor = *std::exchange(learned_, std::nullopt);
      // The member that told it may be gone before the others have asked.
      router_.note_learned(broken_, base_.id, successor);
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

task<void> agreement::next_news() {
  news_.reset();
  try {
    co_await within(news_.wait(), look);
  } catch (const timed_out&) {
    // Members become silent by time alone.
  }
}

void agreement::begin_from(world_view base, std::shared_ptr<world_core> core) {
  base_ = std::move(base);
  known_.core = std::move(core);
  doubts_.clear();
  known_.has_more_doubts = false;
  offer_.reset();
  learned_.reset();
  meet_survivors();
}

void agreement::meet_survivors() {
  const world_core& known_by = known_.core ? *known_.core : *broken_;
  begun_ = service_.now();
  rank_ = base_.rank_of(runtime_.self().id);
  MW_ASSERT(rank_ != no_rank, "a survivor is a member of its base");
  waiting_rank_ = no_rank;
  survivors_.clear();
  survivors_.resize(base_.members.size());
  // A process that was stopped itself finds all others silent until it has listened for
  // a while.
  const time_point earliest = begun_ + 10 * look - broken_->options().broken_after;
  for (rank_t r = 0; r < base_.size(); ++r) {
    survivor& s = at(r);
    s.heard = earliest;
    const rank_t known = known_by.view().rank_of(base_.member(r).id);
    if (r == rank_ || known == no_rank) continue;
    const link& l = *known_by.links()[static_cast<std::size_t>(known)];
    s.last = known_by.links()[static_cast<std::size_t>(known)];
    s.heard = std::max(s.heard, l.last_heard());
    s.is_dead = l.has_seen_death() || known_by.has_left(known);
  }
}

std::uint64_t agreement::last_epoch() const {
  return std::min(router_.last_epoch(base_.name), base_.epoch + most_ahead);
}

world_view agreement::next_view() {
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

task<bool> agreement::attempt(const world_view& view) {
  MW_ASSERT(!next_ && scope_, "a member is part of one try at a time");
  MW_ASSERT(view.rank_of(runtime_.self().id) != no_rank, "a member tries its own views");
  MW_ASSERT(view.epoch > base_.epoch, "a successor has a later epoch");
  router_.note_epoch(view.name, view.epoch);
  succession inherited;
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
  // Doubt it at once: this call may be given up, and its world dropped.
  if (options.rank != 0) doubt(view);
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
    look_around();
    give_up_on_lost(view);
    if (is_overtaken(view)) {
      next_->break_with(
          next_->describe_failure(cause::abandoned, no_rank, operation_kind::form,
                                  "there is later news than this proposal"));
    }
  }
  co_return next_->state() != world_state::broken;
}

task<void> agreement::conclude() {
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

void agreement::give_up_on_lost(const world_view& view) {
  for (rank_t r = 0; r < base_.size(); ++r) {
    const rank_t member = view.rank_of(base_.member(r).id);
    if (r == rank_ || member == no_rank || !(at(r).is_dead || is_silent(at(r)))) continue;
    next_->break_with(next_->describe_failure(
        at(r).is_dead ? cause::peer_died : cause::silent_peer, member,
        operation_kind::form,
        base_.member(r).text() + " was lost while the successor was formed"));
  }
}

bool agreement::is_overtaken(const world_view& view) const noexcept {
  // A member that proposes again has given up what it proposed before.
  return runtime_.refuses_worlds() || verdict_ || learned_ ||
         (offer_ && offer_->member(0).id == view.member(0).id);
}

failure agreement::late() const {
  const rank_t rank = waiting_rank_ == no_rank
                          ? no_rank
                          : broken_->view().rank_of(base_.member(waiting_rank_).id);
  return broken_->describe_failure(
      cause::not_joined, rank, operation_kind::form,
      fmt::format("not shrunk within {}: {}{}{}", duration_text(broken_->options().form),
                  waiting_for_,
                  last_trouble_.empty() ? "" : "; the last try failed: ", last_trouble_));
}

}  // namespace manyworlds::inline v0::detail
