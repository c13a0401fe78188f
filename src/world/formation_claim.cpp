// How a member comes by its rank, also from a holder that is gone.
#include <fmt/format.h>

#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/world/directory.hpp"
#include "manyworlds/world/formation.hpp"
#include "manyworlds/world/runtime_core.hpp"

namespace manyworlds::inline v0 {

task<void> formation::claim_rank() {
  join_record mine;
  mine.who = peers_.self();
  mine.attempt = attempt_;
  mine.last_epoch = directory_.last_epoch(core_.options().name);
  mine.size = size_;
  const std::string before = std::exchange(my_record_, mine.encode());
  waiting_as_ = cause::store_unreachable;
  waiting_for_ = "the store did not answer";

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
      // Whoever wrote that is no member; it is overwritten.
      runtime_.log(log_level::warning,
                   fmt::format("{}: the store holds garbage: {}",
                               core_.options().name.view(), e.what()));
    }
    if (old && rank_ < old->size() &&
        (holders.empty() || holders[0].id != old->member(rank_).id)) {
      holders.push_back(old->member(rank_));
    }

    // Claimed by an earlier try of ours: a member of the old view that wants the rank
    // back waits for us, and we must not wait for it.
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
    const std::string stands =
        co_await store_.compare_set(join_key(rank_), recorded.value_or(""), my_record_);
    if (stands == my_record_) co_return;
    // Another claimant came first, or the key went away meanwhile (compare_set then gives
    // back what was expected): look again.
  }
}

task<bool> formation::says_it_is(process_address who, rank_t rank) {
  if (who.id == peers_.self().id) {
    co_return directory_.holder_of(core_.options().name, rank, &core_) != nullptr;
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
  co_return !answer.empty() && static_cast<claim_answer>(answer[0]) == claim_answer::held;
}

task<bool> formation::is_held(process_address holder,
                              const std::optional<world_view>& old) {
  if (holder.id == peers_.self().id) {
    co_return directory_.holder_of(core_.options().name, rank_, &core_) != nullptr;
  }
  claim_query query;
  query.name = core_.options().name;
  query.rank = rank_;
  bool is_silent = false;
  try {
    const bytes answer = co_await peers_.ask(
        holder, encode(query), service_.now() + std::min(left(), answer_limit));
    if (!answer.empty() && static_cast<claim_answer>(answer[0]) == claim_answer::held) {
      co_return true;
    }
    co_return false;
  } catch (const link_error& e) {
    // A stopped process does not answer and is not gone either: those who know it decide.
    is_silent = e.cause() == cause::silent_peer;
    if (e.cause() == cause::wrong_version) throw;
    // Alive, and no member: it must not keep the rank from those who are.
    if (e.cause() == cause::wrong_secret) {
      note_refusal(rank_, holder);
      co_return false;
    }
  }
  // It is dead, or silent: the members of the old epoch who see that break it at once.
  if (!old || rank_ >= old->size() || old->member(rank_).id != holder.id) co_return false;
  query.epoch = old->epoch;
  bool any_sees_it_alive = false;
  for (rank_t r = 0; r < old->size(); ++r) {
    if (r == rank_) continue;
    const process_address& other = old->member(r);
    if (other.id == peers_.self().id) {
      any_sees_it_alive |= directory_.answer(query) == claim_answer::held;
      continue;
    }
    try {
      const bytes answer = co_await peers_.ask(
          other, encode(query), service_.now() + std::min(left(), answer_limit));
      any_sees_it_alive |=
          !answer.empty() && static_cast<claim_answer>(answer[0]) == claim_answer::held;
    } catch (const link_error&) {
      continue;
    }
  }
  co_return is_silent&& any_sees_it_alive;
}

task<void> formation::withdraw_join() {
  if (my_record_.empty()) co_return;
  const std::optional<std::string> stands = co_await store_.try_get(join_key(rank_));
  if (stands == my_record_) co_await store_.erase(join_key(rank_));
}

}  // namespace manyworlds::inline v0
