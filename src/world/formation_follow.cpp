// The part of all members but rank 0: wait for a proposal, connect, wait for the
// commit.
#include <fmt/format.h>

#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "world/formation.hpp"
#include "world/runtime_core.hpp"
#include "world/world_router.hpp"

namespace manyworlds::inline v0::detail {

namespace {
/// A leader that is present has usually proposed by then. Otherwise it is examined.
constexpr duration leader_patience = std::chrono::milliseconds(50);
}  // namespace

task<void> formation::follow() {
  propose_message proposal = co_await await_proposal();
  const world_view& view = proposal.view;
  if (view.size() != size_ || proposal.rank != rank_ ||
      view.member(rank_).id != peers_.self().id) {
    throw try_again{"the proposal was not for this member"};
  }
  router_.views().note_epoch(core_.options().name, view.epoch);
  if (world_id_ != view.id) adopt(view);
  co_await be_ready(view);
}

task<void> formation::be_ready(const world_view& view) {
  MW_ASSERT(rank_ != 0 && view.size() == size_, "a member follows a view of its world");
  MW_ASSERT(world_id_ == view.id, "a member that gets ready has adopted the view");
  formed_parts parts;
  parts.view = view;
  parts.links.resize(static_cast<std::size_t>(size_));
  parts.channels.resize(static_cast<std::size_t>(size_));
  waiting_as_ = cause::not_joined;
  waiting_rank_ = 0;
  waiting_for_ = "members did not connect to each other in time";
  std::string trouble;
  auto connected = [this](const world_view& v, formed_parts& p) -> task<void> {
    co_await when_any(connect(v, p), until_called_off());
  };
  // Rank 0 of a successor began no later than this. The shorter limit lets it hear from
  // us which member we cannot reach.
  const duration limit = core_.inherits() ? ready_limit - answer_limit : ready_limit;
  try {
    co_await within(connected(view, parts), limit);
  } catch (const timed_out&) {
    trouble = "cannot reach all members in time";
    for (rank_t r = 0; r < size_; ++r) {
      if (r == rank_ || parts.channels[static_cast<std::size_t>(r)].is_open()) continue;
      trouble = fmt::format("cannot reach rank {}, {}, in time", known_as(r),
                            view.member(r).text());
    }
  } catch (const link_error& e) {
    trouble = e.what();
  } catch (const try_again& t) {
    trouble = t.reason;
  }
  ready_message answer;
  answer.world_id = view.id;
  answer.rank = rank_;
  answer.able = trouble.empty();
  answer.reason = trouble;
  tell(parts.links[0], answer);
  if (!trouble.empty()) throw try_again{trouble};
  co_await await_commit(parts.links);
  core_.take_formed(std::move(parts));
  heed_what_followed();
}

// The cause of a break may follow right behind the commit; it is not said again.
void formation::heed_what_followed() {
  for (const control_message& message : inbox_) {
    if (const auto* broken = std::get_if<broken_message>(&message)) {
      core_.break_with(core_.describe_failure(broken->why, broken->culprit,
                                              operation_kind::none, broken->detail));
    }
  }
}

task<propose_message> formation::await_proposal() {
  waiting_as_ = cause::not_joined;
  waiting_rank_ = 0;
  waiting_for_ = "rank 0 has not proposed a world; did it join?";
  duration patience = leader_patience;
  for (;;) {
    while (!inbox_.empty()) {
      control_message message = std::move(inbox_.front());
      inbox_.pop_front();
      if (const auto* refused = std::get_if<refuse_message>(&message)) {
        throw give_up{refused->why, 0, {}, refused->reason};
      }
      if (auto* proposal = std::get_if<propose_message>(&message)) {
        co_return std::move(*proposal);
      }
    }
    news_.reset();
    bool has_news = true;
    try {
      co_await within(news_.wait(), std::exchange(patience, record_check));
    } catch (const timed_out&) {
      has_news = false;
    }
    if (!has_news) {
      const std::string stands =
          co_await store_.compare_set_unique(join_key(rank_), "", my_record_);
      if (stands != my_record_) throw try_again{"another process claims the rank too"};
      co_await when_any(examine_leader(), news_.wait());
    }
  }
}

task<void> formation::examine_leader() {
  if (leader_is_proven_) co_return;
  const std::optional<std::string> text = co_await store_.try_get(join_key(0));
  if (!text || text->empty()) co_return;
  process_address leader;
  try {
    leader = join_record::decode(*text).who;
  } catch (const wire_error&) {
    co_return;
  }
  claim_query query;
  query.name = core_.options().name;
  query.rank = 0;
  // A question uses a separate connection: a link that both dial at once takes longer.
  bool is_refused = false;
  try {
    co_await peers_.ask(leader, encode(query),
                        service_.now() + std::min(left(), answer_limit));
    leader_is_proven_ = true;
  } catch (const link_error& e) {
    is_refused = e.cause() == cause::wrong_secret;
  }
  if (!is_refused) co_return;
  const bool again = refused_ && refused_->rank == 0 && refused_->who.id == leader.id;
  note_refusal(0, leader);
  if (again) throw give_up{cause::wrong_secret, 0, leader.identity, refused_->text()};
}

task<void> formation::until_called_off() {
  for (;;) {
    // Read and left in place: other messages are for `await_commit`.
    for (const control_message& message : inbox_) {
      if (const auto* rolled = std::get_if<rollback_message>(&message)) {
        throw try_again{rolled->reason};
      }
    }
    if (lost_member_) throw try_again{"a member died before all were connected"};
    news_.reset();
    co_await news_.wait();
  }
}

task<void> formation::await_commit(const std::vector<link_hold>& links) {
  waiting_for_ = "rank 0 has not committed the world";
  // A member that has said that it is ready, and no longer is, says that too: rank 0
  // may be committing, and the member that is lost here may be well everywhere else.
  struct on_exit {
    formation& self;
    const std::vector<link_hold>& links;
    bool is_known = false;
    on_exit(formation& f, const std::vector<link_hold>& all) : self(f), links(all) {}
    ~on_exit() {
      if (is_known) return;
      if (!self.lost_member_) {
        self.loss_ = {self.world_id_, cause::abandoned, self.rank_,
                      "it gave up before the commit"};
      }
      for (const link_hold& l : links) self.tell(l, self.loss_);
    }
  } unless_known(*this, links);
  for (;;) {
    while (!inbox_.empty()) {
      const control_message message = std::move(inbox_.front());
      inbox_.pop_front();
      const auto* rolled = std::get_if<rollback_message>(&message);
      const bool is_formed = std::holds_alternative<commit_message>(message);
      const bool is_broken = std::holds_alternative<broken_message>(message);
      unless_known.is_known = is_formed || rolled || is_broken;
      if (is_formed) co_return;
      if (rolled) throw try_again{rolled->reason};
      if (is_broken) {
        throw try_again{"another member broke the world before it was committed here"};
      }
    }
    if (lost_member_) throw try_again{"a member died before the commit"};
    news_.reset();
    co_await news_.wait();
  }
}

}  // namespace manyworlds::inline v0::detail
