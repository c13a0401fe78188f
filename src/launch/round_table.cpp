#include "launch/round_table.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

round_table::round_table(const rendezvous_limits& limits, std::string run,
                         duration patience)
    : limits_(limits), run_(std::move(run)), patience_(patience) {
  MW_ASSERT(limits.min_nodes > 0 && limits.min_nodes <= limits.max_nodes,
            "the limits were checked");
}

round_table::member* round_table::find(std::string_view id) noexcept {
  const auto found = std::find_if(members_.begin(), members_.end(),
                                  [&](const member& m) { return m.node.id == id; });
  return found == members_.end() ? nullptr : &*found;
}

bool round_table::is_in_last(std::string_view id) const noexcept {
  return last_ && last_->find(id);
}

std::size_t round_table::asking() const noexcept {
  return static_cast<std::size_t>(std::count_if(members_.begin(), members_.end(),
                                                [](const member& m) { return m.asks; }));
}

std::size_t round_table::waiting() const noexcept {
  const bool stands = last_ && over_.change == round_change::none;
  return static_cast<std::size_t>(std::count_if(
      members_.begin(), members_.end(),
      [&](const member& m) { return m.asks && !(stands && is_in_last(m.node.id)); }));
}

void round_table::learn(const round& later, const std::set<std::string>& finished,
                        time_point now) {
  if (last_ && last_->number > later.number) return;
  if (last_ && last_->number == later.number) {
    for (const std::string& id : finished) finish(id);
    return;
  }
  finished_ = finished;
  last_ = later;
  note_number(later.number);
  over_ = {};
  last_call_.reset();
  away_.clear();
  for (const round_node& node : later.nodes) {
    // A node that is in it has what it asked for.
    if (member* const here = find(node.id)) {
      here->asks = here->is_outsider;
    } else if (!finished_.contains(node.id)) {
      away_.push_back({node.id, manyworlds::later(now, patience_)});
    }
  }
}

round_table::member& round_table::enter(const node_description& node, bool asks,
                                        time_point now, std::optional<int> place) {
  if (place) replace_outsider(*place);
  std::erase_if(away_, [&](const away& a) { return a.id == node.id; });
  member* known = find(node.id);
  if (!known) {
    members_.push_back({node, false, 0, place, false});
    known = &members_.back();
  }
  known->node = node;
  known->given_place = place;
  if (asks && !known->asks) known->order = next_order_++;
  known->asks = asks;
  if (!last_ && !last_call_ && asking() >= limits_.min_nodes)
    last_call_ = later(now, limits_.last_call);
  if (asking() < limits_.min_nodes) last_call_.reset();
  return *known;
}

void round_table::join(const node_description& node, bool asks, time_point now,
                       std::optional<int> place) {
  enter(node, asks, now, place);
  if (asks && is_in_last(node.id)) end_round(round_change::asked, node.id);
}

void round_table::join_outsider(const round_node& node, time_point now) {
  const node_description* const holder = holder_of(node.place);
  if (holder && holder->id != node.id) return;
  enter(node, true, now, node.place).is_outsider = true;
}

void round_table::replace_outsider(int place) {
  for (const member& m : members_) {
    if (!m.is_outsider || m.given_place != place) continue;
    const std::string id = m.node.id;
    lose(id);
    return;
  }
}

const node_description* round_table::holder_of(int place) const noexcept {
  const auto found = std::find_if(members_.begin(), members_.end(), [&](const member& m) {
    return !m.is_outsider && m.given_place == place;
  });
  return found == members_.end() ? nullptr : &found->node;
}

void round_table::drop(std::string_view id) {
  std::erase_if(members_, [&](const member& m) { return m.node.id == id; });
  std::erase_if(away_, [&](const away& a) { return a.id == id; });
  if (asking() < limits_.min_nodes) last_call_.reset();
}

void round_table::miss(std::string_view id, time_point now) {
  const bool has_place = is_in_last(id);
  drop(id);
  if (has_place) away_.push_back({std::string(id), later(now, patience_)});
}

void round_table::note_death(std::string_view id) noexcept {
  for (away& a : away_) {
    if (a.id == id) a.has_died = true;
  }
}

void round_table::lose(std::string_view id) {
  drop(id);
  if (is_in_last(id)) end_round(round_change::node_lost, id);
}

void round_table::leave(std::string_view id, departure how) {
  drop(id);
  if (is_in_last(id) && how == departure::finished) finished_.insert(std::string(id));
  // A node that is done needs no other round of the others.
  if (is_in_last(id) && how == departure::draining)
    end_round(round_change::node_left, id);
}

void round_table::end_round(round_change why, std::string_view node) {
  // The first cause is the one that is told (rule L-e).
  if (over_.change != round_change::none) return;
  over_ = {why, std::string(node)};
}

void round_table::finish(const std::string& id) {
  if (!is_in_last(id) || find(id)) return;
  finished_.insert(id);
  std::erase_if(away_, [&](const away& a) { return a.id == id; });
}

void round_table::lose_away(time_point now) {
  const bool all_died =
      std::all_of(away_.begin(), away_.end(), [](const away& a) { return a.has_died; });
  std::vector<std::string> lost;
  for (const away& a : away_) {
    if (all_died || now >= a.until) lost.push_back(a.id);
  }
  for (const std::string& id : lost) lose(id);
}

std::optional<time_point> round_table::deadline() const noexcept {
  if (is_closed_) return std::nullopt;
  std::optional<time_point> first = last_call_;
  for (const away& a : away_) first = std::min(first.value_or(a.until), a.until);
  return first;
}

/// Says whether the nodes that ask make a round.
bool round_table::is_complete(time_point now) {
  if (!last_) {
    return asking() >= limits_.max_nodes ||
           (asking() >= limits_.min_nodes && last_call_ && now >= *last_call_);
  }
  if (over_.change == round_change::none || !away_.empty()) return false;
  // Its living nodes keep their places, so they are waited for.
  const bool all_ask =
      std::all_of(members_.begin(), members_.end(),
                  [&](const member& m) { return m.asks || !is_in_last(m.node.id); });
  return all_ask && asking() >= limits_.min_nodes;
}

std::optional<round> round_table::decide(time_point now) {
  lose_away(now);
  if (is_closed_ || !is_complete(now)) return std::nullopt;
  return form();
}

round round_table::form() const {
  std::vector<const member*> asking;
  for (const member& m : members_) {
    if (m.asks) asking.push_back(&m);
  }
  // First those that keep a place, then those of a round that had more places (it is of
  // another run of this id), then the new; among them by the order of asking.
  const auto turn_of = [&](const member* m) {
    const round_node* const before = last_ ? last_->find(m->node.id) : nullptr;
    if (!before) return 2;
    return static_cast<std::size_t>(before->place) < limits_.max_nodes ? 0 : 1;
  };
  std::sort(asking.begin(), asking.end(), [&](const member* a, const member* b) {
    return std::pair(turn_of(a), a->order) < std::pair(turn_of(b), b->order);
  });
  if (asking.size() > limits_.max_nodes) asking.resize(limits_.max_nodes);
  std::set<int> free;
  for (std::size_t i = 0; i < limits_.max_nodes; ++i) free.insert(static_cast<int>(i));
  round next;
  next.run = run_;
  next.number = highest_ + 1;
  for (const member* m : asking) {
    const round_node* before = last_ ? last_->find(m->node.id) : nullptr;
    const bool keeps = before && free.contains(before->place);
    const int any = keeps ? before->place : *free.begin();
    const int place = m->given_place.value_or(any);
    MW_ASSERT(free.contains(place), "a place is given once");
    free.erase(place);
    next.nodes.emplace_back(m->node, place);
  }
  next.assign_ranks();
  return next;
}

void round_table::publish(const round& decided) {
  MW_ASSERT(!last_ || decided.number > last_->number, "rounds grow");
  last_ = decided;
  note_number(decided.number);
  finished_.clear();
  over_ = {};
  last_call_.reset();
  away_.clear();
  for (member& m : members_) {
    if (decided.find(m.node.id)) m.asks = m.is_outsider;
  }
  // What has gone while it was being written.
  for (const round_node& node : decided.nodes) {
    if (!find(node.id)) end_round(round_change::node_lost, node.id);
  }
}

}  // namespace manyworlds::inline v0::detail
