// The part of rank 0: collect the members, propose the next epoch, commit it.
#include <fmt/format.h>

#include <algorithm>

#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "world/formation.hpp"
#include "world/runtime_core.hpp"
#include "world/world_router.hpp"

namespace manyworlds::inline v0::detail {

task<void> formation::lead() {
  MW_ASSERT(rank_ == 0, "rank 0 leads");
  const std::optional<std::string> old_text = co_await store_.try_get(key("view"));
  std::uint64_t highest = router_.views().last_epoch(core_.options().name);
  try {
    if (old_text && !old_text->empty())
      highest = std::max(highest, decode_view(*old_text).epoch);
  } catch (const wire_error&) {
    highest = std::max<std::uint64_t>(highest, 1);
  }

  formed_parts parts;
  parts.links.resize(static_cast<std::size_t>(size_));
  parts.channels.resize(static_cast<std::size_t>(size_));
  parts.view.name = core_.options().name;
  parts.view.members.push_back(peers_.self());
  std::vector<std::uint64_t> attempts{attempt_};
  for (rank_t r = 1; r < size_; ++r) {
    const join_record record = co_await collect(r, parts, attempts);
    parts.view.members.push_back(record.who);
    attempts.push_back(record.attempt);
    highest = std::max(highest, record.last_epoch);
  }

  waiting_as_ = cause::store_unreachable;
  waiting_for_ = fmt::format("the store {} has not answered", store_.address());
  parts.view.epoch = highest + 1;
  parts.view.id = runtime_.random_word() | 1;
  const std::string text = encode(parts.view);
  const std::string stands =
      co_await store_.compare_set_unique(key("view"), old_text.value_or(""), text);
  if (stands != text) throw try_again{"another leader has published a view"};
  router_.views().note_epoch(core_.options().name, parts.view.epoch);

  adopt(parts.view);
  co_await commit_when_ready(parts, attempts);
}

task<void> formation::succeed(const world_view& view) {
  std::string trouble;
  try {
    if (rank_ != 0) co_return co_await be_ready(view);
    formed_parts parts;
    parts.view = view;
    parts.links.resize(static_cast<std::size_t>(size_));
    parts.channels.resize(static_cast<std::size_t>(size_));
    const std::vector<std::uint64_t> already_told;
    co_await commit_when_ready(parts, already_told);
  } catch (const try_again& t) {
    trouble = t.reason;
  }
  if (!trouble.empty()) throw give_up{cause::not_joined, no_rank, {}, trouble};
}

task<void> formation::commit_when_ready(formed_parts& parts,
                                        const std::vector<std::uint64_t>& attempts) {
  MW_ASSERT(rank_ == 0 && parts.view.size() == size_, "rank 0 commits a whole view");
  MW_ASSERT(world_id_ == parts.view.id, "rank 0 has adopted the view that it commits");
  MW_ASSERT(attempts.empty() || attempts.size() == parts.view.members.size(),
            "each proposal names the member's try");
  bool done = false;
  std::string trouble;
  // If this try ends without the commit, the members are told.
  struct on_exit {
    formation& self;
    formed_parts& parts;
    bool& done;
    std::string& trouble;
    ~on_exit() {
      if (!done)
        self.roll_back(parts.links, trouble.empty() ? "the leader gave up" : trouble);
    }
  } unless_done{*this, parts, done, trouble};

  if (!attempts.empty()) co_await propose(parts, attempts);
  auto connected_and_ready = [this](formed_parts& p) -> task<void> {
    co_await connect(p.view, p);
    co_await gather_readiness();
  };
  waiting_as_ = cause::not_joined;
  waiting_for_ = "members did not connect to each other in time";
  try {
    co_await within(connected_and_ready(parts), ready_limit);
  } catch (const timed_out&) {
    trouble = "members did not get ready in time";
  } catch (const link_error& e) {
    trouble = e.what();
  } catch (const try_again& t) {
    trouble = t.reason;
  }
  if (!trouble.empty()) throw try_again{trouble};

  for (const link_hold& l : parts.links) tell(l, commit_message{world_id_});
  done = true;
  core_.take_formed(std::move(parts));
  heed_what_followed();
}

task<void> formation::propose(const formed_parts& parts,
                              const std::vector<std::uint64_t>& attempts) {
  // The view names the holders now; the store is not needed once the world is
  // committed.
  for (rank_t r = 0; r < size_; ++r) co_await store_.erase(join_key(r));
  for (rank_t r = 1; r < size_; ++r) {
    propose_message proposal;
    proposal.view = parts.view;
    proposal.rank = r;
    proposal.attempt = attempts[static_cast<std::size_t>(r)];
    tell(parts.links[static_cast<std::size_t>(r)], proposal);
  }
}

task<join_record> formation::collect(rank_t rank, formed_parts& parts,
                                     const std::vector<std::uint64_t>& attempts) {
  for (;;) {
    waiting_as_ = cause::not_joined;
    waiting_rank_ = rank;
    waiting_peer_ = {};
    waiting_for_ = fmt::format("rank {} has not joined", rank);
    // Longer than the time that is left: when ours ends, that is no failure of the
    // store.
    const std::string text = co_await store_.get(join_key(rank), left() + answer_limit);
    std::optional<join_record> record;
    try {
      if (!text.empty()) record = join_record::decode(text);
    } catch (const wire_error& e) {
      runtime_.log(log_level::warning,
                   fmt::format("{}: the join record of rank {} cannot be read: {}",
                               core_.options().name.view(), rank, e.what()));
    }
    std::string trouble = "its join record cannot be read";
    bool is_refused = false;
    const bool is_twin = record && parts.view.rank_of(record->who.id) != no_rank;
    if (is_twin) {
      // A record that an earlier try left behind looks the same.
      if (co_await says_it_is(record->who, rank)) {
        refuse_twins(*record, rank, parts, attempts);
      }
      trouble = "its process has joined with another rank";
    } else if (record) {
      try {
        link_hold l = co_await peers_.reach(
            record->who, service_.now() + std::min(left(), answer_limit));
        if (record->size != size_) {
          const std::string reason =
              fmt::format("rank 0 joined with size {}, but rank {} with size {}", size_,
                          rank, record->size);
          tell(l, refuse_message{record->attempt, cause::size_disagrees, reason});
          throw give_up{cause::size_disagrees, rank, record->who.identity, reason};
        }
        if (record->backend != core_.options().backend) {
          const std::string reason = fmt::format(
              "rank 0 joined with backend {}, but rank {} with {}",
              name_of(core_.options().backend), rank, name_of(record->backend));
          tell(l, refuse_message{record->attempt, cause::backend_disagrees, reason});
          throw give_up{cause::backend_disagrees, rank, record->who.identity, reason};
        }
        parts.links[static_cast<std::size_t>(rank)] = std::move(l);
        if (refused_ && refused_->rank == rank) refused_.reset();
        co_return *record;
      } catch (const link_error& e) {
        if (e.cause() == cause::wrong_version) {
          throw give_up{e.cause(), rank, record->who.identity, e.what()};
        }
        is_refused = e.cause() == cause::wrong_secret;
        trouble = e.what();
      }
    }
    if (is_refused) {
      note_refusal(rank, record->who);
      co_await until_replaced(rank, text);
      continue;
    }
    // The process that wrote it is gone. If it lives after all, it writes its record
    // again.
    runtime_.log(log_level::debug,
                 fmt::format("{}: the record of rank {} is stale: {}",
                             core_.options().name.view(), rank, trouble));
    co_await store_.erase(join_key(rank));
  }
}

void formation::refuse_twins(const join_record& record, rank_t rank,
                             const formed_parts& parts,
                             const std::vector<std::uint64_t>& attempts) {
  const rank_t twin = parts.view.rank_of(record.who.id);
  MW_ASSERT(twin >= 0 && twin < rank, "a twin has joined with a lower rank");
  const std::size_t slot = static_cast<std::size_t>(twin);
  const std::string reason = fmt::format(
      "one runtime joined as rank {} and as rank {}: each rank needs a runtime of its "
      "own",
      twin, rank);
  const refuse_message refused{record.attempt, cause::invalid_argument, reason};
  if (twin == rank_) {
    router_.take_refusal(refused);
  } else {
    tell(parts.links[slot], refused);
    tell(parts.links[slot],
         refuse_message{attempts[slot], cause::invalid_argument, reason});
  }
  throw give_up{cause::invalid_argument, rank, record.who.identity, reason};
}

task<void> formation::until_replaced(rank_t rank, std::string record) {
  // The record is not erased: that could hit the record of the member that replaces it.
  for (;;) {
    const std::optional<std::string> stands = co_await store_.try_get(join_key(rank));
    if (stands != record) co_return;
    co_await sleep_for(held_pause + runtime_.jitter(held_pause));
  }
}

task<void> formation::gather_readiness() {
  std::vector<bool> ready(static_cast<std::size_t>(size_), false);
  ready[0] = true;
  for (;;) {
    while (!inbox_.empty()) {
      const control_message message = std::move(inbox_.front());
      inbox_.pop_front();
      if (const auto* broken = std::get_if<broken_message>(&message)) {
        throw try_again{"a member is no longer ready: " + broken->detail};
      }
      const auto* said = std::get_if<ready_message>(&message);
      if (!said || said->rank < 1 || said->rank >= size_) continue;
      if (!said->able) {
        throw try_again{fmt::format("rank {} cannot take part: {}", known_as(said->rank),
                                    said->reason)};
      }
      ready[static_cast<std::size_t>(said->rank)] = true;
    }
    if (std::find(ready.begin(), ready.end(), false) == ready.end()) co_return;
    if (lost_member_) throw try_again{"a member died"};
    news_.reset();
    co_await news_.wait();
  }
}

}  // namespace manyworlds::inline v0::detail
