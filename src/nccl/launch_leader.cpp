#include "nccl/launch_leader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace manyworlds::inline v0::detail::nccl {

namespace {

constexpr members_concerned everyone;

[[nodiscard]] order_message with_place(order_message launch, launch_place place) {
  std::visit(
      [&](auto& m) {
        if constexpr (requires { m.place; }) m.place = place;
      },
      launch);
  return launch;
}

}  // namespace

launch_leader::launch_leader(rank_t size, office& home)
    : size_(size),
      home_(home),
      collectives_(size),
      left_(static_cast<std::size_t>(size)),
      made_(static_cast<std::size_t>(size)),
      proposals_(size) {}

void launch_leader::enter(rank_t who, std::uint64_t number, const collective_terms& terms,
                          time_point now) {
  using outcome = collective_table::outcome;
  collective_table::verdict found = collectives_.enter(who, number, terms, now);
  switch (found.what) {
    case outcome::out_of_turn:
      return home_.accuse(who, cause::protocol_error, std::move(found.detail));
    case outcome::disagrees:
      return home_.accuse(who, cause::mismatch, std::move(found.detail));
    case outcome::complete: {
      placement fresh;
      fresh.launch = collective_launch{number, {}};
      fresh.kind = terms.kind;
      return place(std::move(fresh), now);
    }
    case outcome::lost:
      return issue({who, who}, collective_closed{number, found.other});
    case outcome::waits:
      return;
  }
}

void launch_leader::place_pair(rank_t receiver, const pair_request& request,
                               time_point now) {
  if (request.sender < 0 || request.sender >= size_ || request.sender == receiver) {
    return home_.accuse(receiver, cause::protocol_error, "a request for no pair");
  }
  // It hears of nothing further, but its partner does.
  if (left_[static_cast<std::size_t>(receiver)]) {
    return issue({request.sender, request.sender},
                 pair_closed{request.sender, request.token});
  }
  if (left_[static_cast<std::size_t>(request.sender)]) {
    return issue({receiver, receiver}, pair_closed{request.sender, request.token});
  }
  pair_launch launch;
  launch.sender = request.sender;
  launch.receiver = receiver;
  launch.token = request.token;
  launch.bytes = request.bytes;
  launch.layout = request.layout;
  placement fresh;
  fresh.launch = std::move(launch);
  fresh.members = {request.sender, receiver};
  place(std::move(fresh), now);
}

void launch_leader::hear_made(rank_t who, time_point now) {
  if (is_retired_) return;
  const auto at = static_cast<std::size_t>(who);
  if (made_[at]) {
    return home_.accuse(who, cause::protocol_error, "a communicator made twice");
  }
  made_[at] = true;
  if (std::find(made_.begin(), made_.end(), false) != made_.end()) return;
  if (std::find(left_.begin(), left_.end(), true) != left_.end()) return;
  is_connecting_ = true;
  if (!uses_places_) return issue(everyone, connect_message{});
  placement connecting;
  connecting.launch = connect_message{};
  connecting.since = now;
  propose(std::move(connecting), now);
}

void launch_leader::use_places() {
  if (std::exchange(uses_places_, true)) return;
  issue(everyone, places_message{});
}

void launch_leader::open(time_point now) {
  is_open_ = true;
  place_waiting(now);
}

void launch_leader::give_up_opening() {
  if (is_open_ || std::exchange(never_opens_, true)) return;
  for (const placement& each : std::exchange(waiting_, {})) close(each, first_left());
}

void launch_leader::place(placement fresh, time_point now) {
  if (is_retired_) return;
  // Opening the device and resuming its memory take all members.
  if (never_opens_ || (is_suspended_ && first_left() != no_rank)) {
    return close(fresh, first_left());
  }
  // A world that is alone on its GPUs.
  if (is_open_ && !uses_places_ && !is_suspended_ && waiting_.empty() &&
      !changes_memory(fresh.kind)) {
    return issue(fresh.members, std::move(fresh.launch));
  }
  waiting_.push_back(std::move(fresh));
  place_waiting(now);
}

void launch_leader::place_waiting(time_point now) {
  while (is_open_ && !waiting_.empty()) {
    auto next = waiting_.begin();
    if (is_suspended_) {
      next = std::find_if(waiting_.begin(), waiting_.end(), [](const placement& each) {
        return each.kind == operation_kind::resume_device;
      });
      if (next == waiting_.end()) return;
    }
    // What it tells may end an operation, and the task of that starts another, which
    // waits behind.
    placement one = std::move(*next);
    const auto at = waiting_.erase(next);
    if (!place_one(one, now)) {
      waiting_.insert(at, std::move(one));
      return;
    }
  }
}

bool launch_leader::place_one(placement& next, time_point now) {
  if (changes_memory(next.kind)) {
    // No kernel, but nothing may be launched beside it: it comes behind all that has a
    // place, and before all that gets one later.
    if (is_undecided()) return false;
    is_suspended_ = next.kind == operation_kind::suspend_device;
    issue(next.members, std::move(next.launch));
    return true;
  }
  if (!uses_places_) {
    issue(next.members, std::move(next.launch));
    return true;
  }
  if (proposals_.size() + resting_.size() >= most_proposed) return false;
  next.since = now;
  if (const resting* const ahead = resting_of(next.members)) {
    next.silent = ahead->what.silent;
    resting_.push_back({std::move(next), ahead->until});
  } else {
    propose(std::move(next), now);
  }
  return true;
}

void launch_leader::propose(placement what, time_point now) {
  const members_concerned members = what.members;
  const std::uint64_t number = proposals_.propose(std::move(what), now);
  issue(members, propose_message{number});
}

void launch_leader::hear_promise(rank_t from, const promise_message& m, time_point now) {
  if (is_retired_) return;
  if (!home_.is_credible(m.time)) {
    return home_.accuse(from, cause::protocol_error,
                        fmt::format("a promise at time {}, far from all that its GPUs "
                                    "can have seen",
                                    m.time));
  }
  using outcome = proposal_table::outcome;
  proposal_table::verdict found = proposals_.hear(from, m, now);
  switch (found.what) {
    case outcome::wrong:
      return home_.accuse(from, cause::protocol_error,
                          "a promise for what was not proposed");
    case outcome::late:
      return learn(found.took, true);
    case outcome::waits:
      return;
    case outcome::decided:
      break;
  }
  learn(found.took, false);
  proposal_table::proposal& decided = *found.decided;
  issue(decided.what.members,
        with_place(std::move(decided.what.launch), {decided.number, decided.latest}));
  place_waiting(now);
}

// Patience follows what answers take: a far member is waited for, and one that does not
// answer at all holds the others' GPUs up for no longer than before.
void launch_leader::learn(duration took, bool is_late) noexcept {
  const duration wanted = is_late ? 2 * took : 4 * took;
  const duration less = patience_ - patience_ / 8;
  patience_ = std::clamp(std::max(wanted, is_late ? patience_ : less), shortest_patience,
                         longest_patience);
}

void launch_leader::tick(time_point now) {
  if (is_retired_) return;
  rest(proposals_.take_overdue(now, patience_), now);
  std::vector<placement> rested;
  std::erase_if(resting_, [&](resting& each) {
    if (each.until > now) return false;
    rested.push_back(std::move(each.what));
    return true;
  });
  // All have their numbers before any is told: a task that is resumed by it may start
  // what comes behind.
  for (placement& each : rested) {
    const members_concerned members = each.members;
    const std::uint64_t number = proposals_.propose(std::move(each), now);
    orders_.push_back({members, propose_message{number}});
  }
  tell_orders();
  place_waiting(now);
}

const launch_leader::resting* launch_leader::resting_of(
    const members_concerned& members) const noexcept {
  const auto found =
      std::find_if(resting_.begin(), resting_.end(),
                   [&](const resting& each) { return each.what.members == members; });
  return found == resting_.end() ? nullptr : &*found;
}

// Law 5: what concerns the same members rests as long as the first of it, and comes back
// in its order.
void launch_leader::rest(std::vector<proposal_table::proposal> retracted,
                         time_point now) {
  std::vector<order> told;
  for (proposal_table::proposal& each : retracted) {
    told.push_back({each.what.members, retract_message{each.number}});
    const int doublings = std::min(each.what.retractions++, 10);
    time_point until = now + std::min(shortest_patience * (1 << doublings), longest_rest);
    each.what.silent = each.silent.front();
    if (const resting* const ahead = resting_of(each.what.members)) {
      each.what.silent = ahead->what.silent;
      until = ahead->until;
    }
    resting_.push_back({std::move(each.what), until});
  }
  // A task that is resumed by it may start what comes behind.
  for (order& each : told) issue(each.to, std::move(each.text));
}

std::optional<time_point> launch_leader::due() const noexcept {
  std::optional<time_point> next;
  if (const auto oldest = proposals_.oldest()) next = *oldest + patience_;
  for (const resting& each : resting_) {
    if (!next || each.until < *next) next = each.until;
  }
  return next;
}

std::optional<launch_leader::unplaced> launch_leader::oldest_unplaced(
    time_point now, duration limit) const {
  for (const auto& [number, each] : proposals_.open()) {
    const duration since = now - each.what.since;
    // An operation that was just proposed anew has no answers yet, so the member that was
    // silent before is named.
    const rank_t before = each.what.silent;
    if (since >= limit) {
      return unplaced{before == no_rank ? each.silent.front() : before, since};
    }
  }
  for (const resting& each : resting_) {
    const duration since = now - each.what.since;
    if (since >= limit) return unplaced{each.what.silent, since};
  }
  return std::nullopt;
}

template <class Container, class Of>
void launch_leader::close_all_of(Container& from, rank_t left, Of placement_of) {
  std::vector<placement> closed;
  std::erase_if(from, [&](auto& each) {
    placement& what = placement_of(each);
    // The memory is not resumed without all members, so all that waits for it is closed.
    if (!what.members.has(left) && !is_suspended_) return false;
    closed.push_back(std::move(what));
    return true;
  });
  for (const placement& each : closed) close(each, left);
}

void launch_leader::leave(rank_t who, time_point now) {
  left_[static_cast<std::size_t>(who)] = true;
  for (const std::uint64_t number : collectives_.leave(who)) {
    issue(everyone, collective_closed{number, who});
  }
  const bool will_never_open = !std::exchange(is_connecting_, true);
  for (proposal_table::proposal& each : proposals_.take_of(who)) {
    issue(each.what.members, retract_message{each.number});
    close(each.what, who);
  }
  if (will_never_open) {
    issue(everyone, collective_closed{never, who});
    give_up_opening();
  }
  close_all_of(resting_, who, [](resting& each) -> placement& { return each.what; });
  close_all_of(waiting_, who, [](placement& each) -> placement& { return each; });
  place_waiting(now);
}

rank_t launch_leader::first_left() const noexcept {
  const auto found = std::find(left_.begin(), left_.end(), true);
  return found == left_.end() ? no_rank : static_cast<rank_t>(found - left_.begin());
}

void launch_leader::close(const placement& what, rank_t left) {
  if (const auto* pair = std::get_if<pair_launch>(&what.launch)) {
    return issue(what.members, pair_closed{pair->sender, pair->token});
  }
  if (const auto* collective = std::get_if<collective_launch>(&what.launch)) {
    return issue(what.members, collective_closed{collective->number, left});
  }
  issue(what.members, collective_closed{never, left});
  give_up_opening();
}

// Members that wait for a decision hold up their GPUs.
void launch_leader::retire() {
  if (std::exchange(is_retired_, true)) return;
  for (proposal_table::proposal& each : proposals_.take_all()) {
    orders_.push_back({each.what.members, retract_message{each.number}});
  }
  resting_.clear();
  waiting_.clear();
  tell_orders();
}

// The order is that of this queue. To tell something may resume a user's task, which
// starts an operation, which is decided at once: it must come behind this one here and at
// every member. This member hears last, so that the others hear early.
void launch_leader::issue(members_concerned to, order_message text) {
  orders_.push_back({to, std::move(text)});
  tell_orders();
}

void launch_leader::tell_orders() {
  if (std::exchange(is_issuing_, true)) return;
  while (!orders_.empty() && !is_stopped_) {
    const order next = std::move(orders_.front());
    orders_.pop_front();
    for (rank_t whom = 1; whom < size_; ++whom) {
      if (!next.to.has(whom) || left_[static_cast<std::size_t>(whom)]) continue;
      home_.tell(whom, next.text);
    }
    if (next.to.has(0) && !is_stopped_) home_.tell(0, next.text);
  }
  is_issuing_ = false;
}

}  // namespace manyworlds::inline v0::detail::nccl
