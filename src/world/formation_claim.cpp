// How a member claims its rank, also from a holder that is gone.
#include <fmt/format.h>

#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "world/formation.hpp"
#include "world/runtime_core.hpp"
#include "world/world_router.hpp"

namespace manyworlds::inline v0::detail {

namespace {
constexpr duration head_start = std::chrono::milliseconds(20);
}  // namespace

task<void> formation::claim_rank() {
  join_record mine;
  mine.who = peers_.self();
  mine.attempt = attempt_;
  mine.last_epoch = router_.views().last_epoch(core_.options().name);
  mine.size = size_;
  mine.backend = core_.options().backend;
  const std::string before = std::exchange(my_record_, mine.encode());
  // Only one request can be prepared before the gate is shut. It leaves an empty
  // record, which counts as none.
  store_request parting(store_operation::compare_set, {join_key(rank_)}, answer_limit);
  parting.expected = my_record_;
  store_.set_parting_request(std::move(parting));
  waiting_as_ = cause::store_unreachable;
  waiting_for_ = fmt::format("the store {} has not answered", store_.address());

  for (;;) {
    std::optional<std::string> recorded = co_await store_.try_get(join_key(rank_));
    const std::optional<std::string> viewed = co_await store_.try_get(key("view"));
    if (recorded && recorded->empty()) recorded.reset();

    std::optional<world_view> old;
    std::vector<process_address> holders;
    try {
      if (viewed && !viewed->empty()) old = decode_view(*viewed);
      if (recorded) holders.push_back(join_record::decode(*recorded).who);
    } catch (const wire_error& e) {
      // A record that no member has written is overwritten.
      runtime_.log(log_level::warning,
                   fmt::format("{}: a record of this world in the store cannot be read, "
                               "and is overwritten: {}",
                               core_.options().name.view(), e.what()));
    }
    if (old && rank_ < old->size() &&
        (holders.empty() || holders[0].id != old->member(rank_).id)) {
      holders.push_back(old->member(rank_));
    }

    // An earlier try of ours has claimed it: a member of the old view that wants the
    // rank back waits for us, and we must not wait for it.
    if (recorded && *recorded == before) holders.clear();
    bool held = false;
    for (const process_address& holder : holders) {
      if (!co_await is_held(holder, old)) continue;
      held = true;
      waiting_as_ = cause::rank_taken;
      waiting_rank_ = rank_;
      waiting_peer_ = holder.identity;
      waiting_for_ = fmt::format("rank {} is held by {}", rank_, holder.text());
    }
    if (held) {
      co_await sleep_for(held_pause + runtime_.jitter(held_pause));
      continue;
    }
    waiting_peer_ = {};
    const std::string stands = co_await store_.compare_set_unique(
        join_key(rank_), recorded.value_or(""), my_record_);
    if (stands == my_record_) co_return;
    // Another claimant came first, or the key went away meanwhile (compare_set then
    // gives back what was expected): look again.
  }
}

task<bool> formation::says_it_is(process_address who, rank_t rank) {
  if (who.id == peers_.self().id) {
    co_return router_.holder_of(core_.options().name, rank, &core_) != nullptr;
  }
  claim_query query;
  query.name = core_.options().name;
  query.rank = rank;
  bytes answer;
  try {
    answer = co_await peers_.ask(who, encode(query),
                                 service_.now() + std::min(left(), answer_limit));
  } catch (const link_error&) {
    co_return false;
  }
  co_return !answer.empty() && decode_answer(answer) == claim_answer::held;
}

task<bool> formation::is_held(process_address holder,
                              const std::optional<world_view>& old) {
  if (holder.id == peers_.self().id) {
    co_return router_.holder_of(core_.options().name, rank_, &core_) != nullptr;
  }
  // Other members of the old epoch may know that it is dead or silent.
  const bool others_know =
      old && rank_ < old->size() && old->member(rank_).id == holder.id;
  inquiry found;
  auto both = [&](scope& s) -> task<void> {
    s.spawn(ask_holder(holder, found, s));
    if (others_know) s.spawn(ask_others(*old, found, s));
    co_return;
  };
  co_await scope::run(both);
  if (found.said) co_return *found.said;
  // A stopped process does not answer and is not gone either: the members that know it
  // decide.
  co_return found.may_be_there&& found.seen_alive;
}

task<void> formation::ask_holder(const process_address& holder, inquiry& found,
                                 scope& both) {
  claim_query query;
  query.name = core_.options().name;
  query.rank = rank_;
  try {
    const bytes answer = co_await peers_.ask(
        holder, encode(query), service_.now() + std::min(left(), answer_limit));
    found.said = !answer.empty() && decode_answer(answer) == claim_answer::held;
  } catch (const link_error& e) {
    if (e.cause() == cause::wrong_version) throw;
    if (e.cause() == cause::wrong_secret) {
      // It lives and is no member: it must not keep the rank from one that is.
      note_refusal(rank_, holder);
      found.said = false;
    }
    // A process that closes a dialled connection may only have too many of them.
    found.may_be_there =
        e.cause() == cause::silent_peer || e.cause() == cause::connection_lost;
  }
  found.is_unsure.set();
  if (found.said) both.cancel();
}

task<void> formation::ask_others(const world_view& old, inquiry& found, scope& both) {
  // A healthy holder answers by then, and the others need not be asked.
  try {
    co_await within(found.is_unsure.wait(), head_start);
  } catch (const timed_out&) {
    found.is_unsure.set();
  }
  auto all = [&](scope& s) -> task<void> {
    for (rank_t r = 0; r < old.size(); ++r) {
      if (r != rank_) s.spawn(ask_other(old, r, found));
    }
    co_return;
  };
  co_await scope::run(all);
  if (found.seen_gone && !found.seen_alive) both.cancel();
}

task<void> formation::ask_other(const world_view& old, rank_t rank, inquiry& found) {
  MW_ASSERT(rank != rank_ && rank_ < old.size(), "another member judges the holder");
  const process_address& other = old.member(rank);
  claim_query query;
  query.name = core_.options().name;
  query.rank = rank_;
  query.epoch = old.epoch;
  query.holder = old.member(rank_).id;
  claim_answer said = claim_answer::vacant;
  if (other.id == peers_.self().id) {
    said = router_.answer(query);
  } else {
    try {
      const bytes answer = co_await peers_.ask(
          other, encode(query), service_.now() + std::min(left(), answer_limit));
      if (!answer.empty()) said = decode_answer(answer);
    } catch (const link_error&) {
      co_return;
    }
  }
  found.seen_alive |= said == claim_answer::held;
  found.seen_gone |= said == claim_answer::gone;
}

task<void> formation::withdraw_join() {
  if (my_record_.empty()) co_return;
  if (store_.is_shut()) co_return co_await store_.part();
  const std::optional<std::string> stands = co_await store_.try_get(join_key(rank_));
  if (stands == my_record_) co_await store_.erase(join_key(rank_));
}

}  // namespace manyworlds::inline v0::detail
