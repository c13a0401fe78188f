#include "manyworlds/world/formation.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/world/directory.hpp"
#include "manyworlds/world/runtime_core.hpp"

namespace manyworlds::inline v0 {

namespace {

using namespace std::chrono_literals;

/// A member whose record was erased (a leader died after it had read it) writes it again.
constexpr duration record_check = 1s;
/// How long one member may take to answer a dial or a question before it counts as
/// silent.
constexpr duration answer_limit = 1s;
/// From the proposal to the last `ready`; then another try, perhaps with other members.
constexpr duration ready_limit = 5s;
constexpr duration retry_pause = 10ms;
constexpr duration held_pause = 50ms;

}  // namespace

formation::formation(world_core& core)
    : core_(core),
      runtime_(core.runtime()),
      directory_(runtime_.worlds()),
      service_(runtime_.service()),
      peers_(runtime_.peers()),
      store_(core.rendezvous()),
      rank_(core.options().rank),
      size_(core.options().size),
      deadline_(service_.now() + core.options().form) {
  directory_.begin(*this);
}

formation::~formation() { directory_.end(*this); }

std::string formation::key(const std::string& tail) const {
  return fmt::format("mw/{}/{}", core_.options().name.view(), tail);
}
std::string formation::join_key(rank_t rank) const {
  return key(fmt::format("join/{}", rank));
}

duration formation::left() const {
  return std::max(duration::zero(), deadline_ - service_.now());
}

void formation::adopt(const world_view& view) {
  world_id_ = view.id;
  members_.clear();
  for (const process_address& m : view.members) members_.push_back(m.id);
  lost_member_ = false;
}

void formation::forget_view() noexcept {
  world_id_ = 0;
  members_.clear();
  lost_member_ = false;
}

void formation::take(control_message message) {
  inbox_.push_back(std::move(message));
  news_.set();
}

bool formation::may_say(const control_message& message,
                        const incarnation& speaker) const noexcept {
  const auto is_member = [&](std::size_t rank) {
    return rank < members_.size() && members_[rank] == speaker;
  };
  if (std::holds_alternative<commit_message>(message) ||
      std::holds_alternative<rollback_message>(message)) {
    return is_member(0);
  }
  if (const auto* said = std::get_if<ready_message>(&message)) {
    return said->rank >= 0 && is_member(static_cast<std::size_t>(said->rank));
  }
  if (std::holds_alternative<broken_message>(message)) {
    return std::find(members_.begin(), members_.end(), speaker) != members_.end();
  }
  return true;
}

void formation::link_lost(const incarnation& peer) {
  if (std::find(members_.begin(), members_.end(), peer) == members_.end()) return;
  lost_member_ = true;
  news_.set();
}

void formation::tell(const link_hold& l, const control_message& message) {
  if (l && l->is_up()) l->send(encode(message));
}

void formation::roll_back(const std::vector<link_hold>& links,
                          const std::string& reason) noexcept {
  for (const link_hold& l : links) tell(l, rollback_message{world_id_, reason});
  forget_view();
}

failure formation::late() const {
  std::string detail = fmt::format(
      "not formed within {:.3g} s: {}",
      std::chrono::duration<double>(core_.options().form).count(), waiting_for_);
  failure f = core_.describe_failure(waiting_as_, waiting_rank_, operation_kind::form,
                                     std::move(detail));
  if (waiting_peer_.pid != 0) f.peer = waiting_peer_;
  return f;
}

task<void> formation::run() {
  bool is_late = false;
  std::optional<failure> failed;
  try {
    co_await when_any(within(until_formed(), left()), stopped_.wait());
  } catch (const timed_out&) {
    is_late = true;
  } catch (const give_up& g) {
    failed = core_.describe_failure(g.why, g.rank, operation_kind::form, g.reason);
    if (g.peer.pid != 0) failed->peer = g.peer;
  } catch (const store_error& e) {
    failed = core_.describe_failure(cause::store_unreachable, no_rank,
                                    operation_kind::form, e.what());
  } catch (const link_error& e) {
    failed = core_.describe_failure(e.cause(), no_rank, operation_kind::form, e.what());
  } catch (const std::exception& e) {
    // A store of the user's may throw anything.
    failed = core_.describe_failure(cause::out_of_resources, no_rank,
                                    operation_kind::form, e.what());
  }
  if (is_late) failed = late();
  const bool store_answers = !failed || failed->cause != cause::store_unreachable;
  bool withdrawn = true;
  if ((failed && store_answers) || core_.state() == world_state::broken) {
    // Best effort, and bounded. Before the failure is told: its store may be gone right
    // after.
    try {
      co_await within(withdraw_join(), answer_limit);
    } catch (const std::exception&) {
      withdrawn = false;
    }
  }
  if (!withdrawn) {
    runtime_.log(log_level::debug, fmt::format("{}: the record in the store stays behind",
                                               core_.options().name.view()));
  }
  if (failed) core_.break_with(std::move(*failed));
}

task<void> formation::until_formed() {
  for (;;) {
    std::string reason;
    try {
      co_await try_once();
      co_return;
    } catch (const try_again& t) {
      reason = t.reason;
    }
    runtime_.log(log_level::debug, fmt::format("{}: forming again: {}",
                                               core_.options().name.view(), reason));
    forget_view();
    co_await sleep_for(retry_pause + runtime_.jitter(retry_pause));
  }
}

task<void> formation::try_once() {
  attempt_ = runtime_.random_word();
  inbox_.clear();
  co_await claim_rank();
  if (rank_ == 0) {
    co_await lead();
  } else {
    co_await follow();
  }
}

// --- the rank
// -----------------------------------------------------------------------------------

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
    if (e.cause() == cause::wrong_secret || e.cause() == cause::wrong_version) throw;
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

// --- rank 0
// -------------------------------------------------------------------------------------

task<void> formation::lead() {
  const std::optional<std::string> old_text = co_await store_.try_get(key("view"));
  std::uint64_t highest = directory_.last_epoch(core_.options().name);
  try {
    if (old_text && !old_text->empty())
      highest = std::max(highest, decode_view(*old_text).epoch);
  } catch (const wire_error&) {
    highest = std::max<std::uint64_t>(highest, 1);
  }

  formed_parts parts;
  parts.links.resize(static_cast<std::size_t>(size_));
  parts.connections.resize(static_cast<std::size_t>(size_));
  parts.view.name = core_.options().name;
  parts.view.members.push_back(peers_.self());
  std::vector<std::uint64_t> attempts{attempt_};
  for (rank_t r = 1; r < size_; ++r) {
    const join_record record = co_await collect(r, parts.links);
    parts.view.members.push_back(record.who);
    attempts.push_back(record.attempt);
    highest = std::max(highest, record.last_epoch);
  }

  waiting_as_ = cause::store_unreachable;
  waiting_for_ = "the store did not answer";
  parts.view.epoch = highest + 1;
  parts.view.id = runtime_.random_word() | 1;
  const std::string text = encode(parts.view);
  const std::string stands =
      co_await store_.compare_set(key("view"), old_text.value_or(""), text);
  if (stands != text) throw try_again{"another leader has published a view"};
  directory_.note_epoch(core_.options().name, parts.view.epoch);

  adopt(parts.view);
  bool done = false;
  std::string trouble;
  // However this try ends but by the commit, the members are told.
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

  // The view names the holders now; nothing of the store is needed once the world is
  // committed.
  for (rank_t r = 0; r < size_; ++r) co_await store_.erase(join_key(r));
  for (rank_t r = 1; r < size_; ++r) {
    propose_message proposal;
    proposal.view = parts.view;
    proposal.rank = r;
    proposal.attempt = attempts[static_cast<std::size_t>(r)];
    tell(parts.links[static_cast<std::size_t>(r)], proposal);
  }
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
}

task<join_record> formation::collect(rank_t rank, std::vector<link_hold>& links) {
  for (;;) {
    waiting_as_ = cause::not_joined;
    waiting_rank_ = rank;
    waiting_peer_ = {};
    waiting_for_ = fmt::format("rank {} has not joined", rank);
    const std::string text = co_await store_.get(join_key(rank), left());
    std::optional<join_record> record;
    try {
      if (!text.empty()) record = join_record::decode(text);
    } catch (const wire_error& e) {
      runtime_.log(log_level::warning,
                   fmt::format("{}: rank {} joined with garbage: {}",
                               core_.options().name.view(), rank, e.what()));
    }
    std::string trouble = "its record is garbage";
    if (record) {
      try {
        link_hold l = co_await peers_.reach(
            record->who, service_.now() + std::min(left(), answer_limit));
        if (record->size != size_) {
          const std::string reason =
              fmt::format("rank 0 joined with size {}, rank {} with size {}", size_, rank,
                          record->size);
          tell(l, refuse_message{record->attempt, cause::size_disagrees, reason});
          throw give_up{cause::size_disagrees, rank, record->who.identity, reason};
        }
        links[static_cast<std::size_t>(rank)] = std::move(l);
        co_return *record;
      } catch (const link_error& e) {
        if (e.cause() == cause::wrong_secret || e.cause() == cause::wrong_version) {
          throw give_up{e.cause(), rank, record->who.identity, e.what()};
        }
        trouble = e.what();
      }
    }
    // Whoever wrote it is gone. Should it live all the same, it writes its record again.
    runtime_.log(log_level::debug,
                 fmt::format("{}: the record of rank {} is stale: {}",
                             core_.options().name.view(), rank, trouble));
    co_await store_.erase(join_key(rank));
  }
}

task<void> formation::gather_readiness() {
  std::vector<bool> ready(static_cast<std::size_t>(size_), false);
  ready[0] = true;
  for (;;) {
    while (!inbox_.empty()) {
      const control_message message = std::move(inbox_.front());
      inbox_.pop_front();
      const auto* said = std::get_if<ready_message>(&message);
      if (!said || said->rank < 1 || said->rank >= size_) continue;
      if (!said->able) {
        throw try_again{fmt::format("rank {} is not able: {}", said->rank, said->reason)};
      }
      ready[static_cast<std::size_t>(said->rank)] = true;
    }
    if (std::find(ready.begin(), ready.end(), false) == ready.end()) co_return;
    if (lost_member_) throw try_again{"a member died"};
    news_.reset();
    co_await news_.wait();
  }
}

// --- the other members
// --------------------------------------------------------------------------

task<void> formation::follow() {
  propose_message proposal = co_await await_proposal();
  const world_view& view = proposal.view;
  if (view.size() != size_ || proposal.rank != rank_ ||
      view.member(rank_).id != peers_.self().id) {
    throw try_again{"the proposal was not for this member"};
  }
  directory_.note_epoch(core_.options().name, view.epoch);
  adopt(view);

  formed_parts parts;
  parts.view = view;
  parts.links.resize(static_cast<std::size_t>(size_));
  parts.connections.resize(static_cast<std::size_t>(size_));
  waiting_as_ = cause::not_joined;
  waiting_rank_ = 0;
  waiting_for_ = "members did not connect to each other in time";
  std::string trouble;
  try {
    co_await within(connect(view, parts), ready_limit);
  } catch (const timed_out&) {
    trouble = "cannot reach all members in time";
  } catch (const link_error& e) {
    trouble = e.what();
  }
  ready_message answer;
  answer.world_id = view.id;
  answer.rank = rank_;
  answer.able = trouble.empty();
  answer.reason = trouble;
  tell(parts.links[0], answer);
  if (!trouble.empty()) throw try_again{trouble};
  co_await await_commit();
  core_.take_formed(std::move(parts));
  // Behind the commit may stand why it is broken already; nobody says that again.
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
      co_await within(news_.wait(), record_check);
    } catch (const timed_out&) {
      has_news = false;
    }
    if (!has_news) {
      const std::string stands =
          co_await store_.compare_set(join_key(rank_), "", my_record_);
      if (stands != my_record_) throw try_again{"another process claims the rank too"};
    }
  }
}

task<void> formation::await_commit() {
  waiting_for_ = "rank 0 has not committed the world";
  for (;;) {
    while (!inbox_.empty()) {
      const control_message message = std::move(inbox_.front());
      inbox_.pop_front();
      if (std::holds_alternative<commit_message>(message)) co_return;
      if (const auto* rolled = std::get_if<rollback_message>(&message)) {
        throw try_again{rolled->reason};
      }
      if (std::holds_alternative<broken_message>(message)) {
        throw try_again{"another member broke the world before it was committed here"};
      }
    }
    // A member that died is the leader's to notice; without a leader there is no commit.
    if (lost_member_) throw try_again{"a member died before the commit"};
    news_.reset();
    co_await news_.wait();
  }
}

// --- connecting
// ---------------------------------------------------------------------------------

task<void> formation::connect(const world_view& view, formed_parts& parts) {
  auto all = [this, &view, &parts](scope& s) -> task<void> {
    for (rank_t r = 0; r < size_; ++r) {
      if (r != rank_) s.spawn(connect_one(view, r, parts));
    }
    co_return;
  };
  co_await scope::run(all);
}

task<void> formation::connect_one(const world_view& view, rank_t peer,
                                  formed_parts& parts) {
  const std::size_t slot = static_cast<std::size_t>(peer);
  const time_point until = service_.now() + std::min(left(), ready_limit);
  if (!parts.links[slot]) {
    parts.links[slot] = co_await peers_.reach(view.member(peer), until);
  }
  // The lower rank dials: one connection for each pair.
  if (rank_ < peer) {
    parts.connections[slot] =
        co_await peers_.dial_data(view.member(peer), view.id, rank_, until);
    co_return;
  }
  for (;;) {
    auto connection = directory_.claim_connection(view.id, peer, view.member(peer).id);
    if (connection) {
      parts.connections[slot] = std::move(*connection);
      co_return;
    }
    news_.reset();
    co_await news_.wait();
  }
}

}  // namespace manyworlds::inline v0
