#include "mpmd/placement_search.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace manyworlds::inline v0::detail {

namespace {

/// A step looks at each node at most, so that a number of looks bounds the time.
constexpr std::uint64_t looks_for_better = 200'000;

/// A rule that excludes nodes, and the last of them. Of several rules the one is told of
/// that excludes the last node.
struct exclusion {
  std::uint32_t node = 0;
  std::uint32_t rule = none;

  void note(std::uint32_t last, std::uint32_t by) noexcept {
    if (by != none && last >= node) *this = {last, by};
  }
};

}  // namespace

bool placement_search::are_exchangeable(std::uint32_t a, std::uint32_t b) const {
  const placement_bundle& one = problem_.bundles[a];
  const placement_bundle& other = problem_.bundles[b];
  return one.form == other.form && one.fixed_to == none && other.fixed_to == none;
}

std::uint64_t placement_search::left_of_form(std::uint32_t depth) const {
  std::uint32_t end = depth;
  while (end < problem_.bundles.size() && are_exchangeable(depth, end)) ++end;
  return end - depth;
}

bool placement_search::enter(std::uint32_t depth) {
  frame& at = frames_[depth];
  at.tried.clear();
  const bool is_more_of_a_form = depth > 0 && are_exchangeable(depth - 1, depth);
  // Where the bundle before this one was refuted, this one is: they could be exchanged.
  if (is_more_of_a_form) {
    at.tried = frames_[depth - 1].tried;
    return true;
  }
  // The first dead end is told of one bundle, so only later ones are foreseen.
  if (deepest_.bundle == none) return true;
  return state_.has_room(problem_.bundles[depth],
                         std::max<std::uint64_t>(left_of_form(depth), 1));
}

/// What was found among the nodes that were looked at.
struct placement_search::choice {
  std::uint32_t node = none;
  node_rank best{};
  std::optional<node_rank> second;
  exclusion separated;
  exclusion exceeded;
};

/// Nodes of one class, from the first to the last of those that were not tried.
struct placement_search::alike_nodes {
  std::uint32_t first = none;
  std::uint32_t last = none;
};

placement_search::alike_nodes placement_search::untried(
    const frame& at, const std::set<std::uint32_t>& nodes) {
  if (at.tried.empty()) return {*nodes.begin(), *nodes.rbegin()};
  const auto is_left = [&](std::uint32_t n) { return at.tried[n] == 0; };
  const auto first = std::find_if(nodes.begin(), nodes.end(), is_left);
  if (first == nodes.end()) return {};
  return {*first, *std::find_if(nodes.rbegin(), nodes.rend(), is_left)};
}

void placement_search::look(const placement_bundle& bundle, const alike_nodes& nodes,
                            choice& found) {
  if (nodes.first == none) return;
  ++looks_;
  const node_verdict verdict = state_.judge(bundle, nodes.first);
  if (verdict.what != obstacle::nothing) {
    found.separated.note(nodes.last, verdict.separation);
    found.exceeded.note(nodes.last, verdict.preference);
    return;
  }
  const node_rank rank = state_.rank(bundle, nodes.first);
  const bool are_several = nodes.first != nodes.last;
  // Of equal ones the first is taken.
  const bool is_best = found.node == none || rank < found.best ||
                       (nodes.first < found.node && rank == found.best);
  if (is_best) {
    if (found.node != none) found.second = found.best;
    if (are_several) found.second = rank;
    found.best = rank;
    found.node = nodes.first;
  } else if (!found.second || rank < *found.second) {
    found.second = rank;
  }
}

bool placement_search::choose(std::uint32_t depth) {
  const placement_bundle& bundle = problem_.bundles[depth];
  frame& at = frames_[depth];
  choice found;
  const auto look_at = [&](std::uint32_t node) {
    if (at.tried.empty() || at.tried[node] == 0) look(bundle, {node, node}, found);
  };
  if (bundle.fixed_to != none) {
    look_at(bundle.fixed_to);
  } else if (const node_classes::class_map* const classes = state_.classes()) {
    for (const auto& [facts, nodes] : *classes) look(bundle, untried(at, nodes), found);
  } else {
    for (std::uint32_t n = 0; n < problem_.nodes.size(); ++n) look_at(n);
  }
  if (found.node == none) return false;
  placement_decision chosen;
  chosen.node = found.node;
  chosen.separation = found.separated.rule;
  if (found.second) {
    const auto differs =
        std::mismatch(found.best.begin(), found.best.end(), found.second->begin());
    chosen.reason = static_cast<std::size_t>(differs.first - found.best.begin());
    chosen.is_only = false;
  } else {
    chosen.is_last = !at.tried.empty();
    chosen.preference = found.exceeded.rule;
    chosen.is_only = !chosen.is_last && chosen.preference == none;
  }
  at.chosen = chosen;
  return true;
}

void placement_search::refute(frame& at, std::uint32_t node) {
  if (at.tried.empty()) at.tried.assign(problem_.nodes.size(), 0);
  for (std::uint32_t n = 0; n < problem_.nodes.size(); ++n)
    if (at.tried[n] == 0 && (n == node || state_.are_alike(n, node))) at.tried[n] = 1;
}

void placement_search::note_dead_end(std::uint32_t depth) {
  // Where some were tried, the dead ends are further on.
  if (!frames_[depth].tried.empty()) return;
  if (deepest_.bundle != none && deepest_.bundle >= depth) return;
  deepest_ = {depth, {}, {}, {}};
  for (std::uint32_t n = 0; n < problem_.nodes.size(); ++n) {
    deepest_.verdicts.push_back(state_.judge(problem_.bundles[depth], n));
    deepest_.free.push_back(state_.free(n));
  }
  for (std::uint32_t i = 0; i < depth; ++i)
    deepest_.nodes_of.push_back(frames_[i].chosen.node);
}

search_end placement_search::run(std::uint64_t most_steps) {
  const auto bundles = static_cast<std::uint32_t>(problem_.bundles.size());
  std::uint32_t depth = 0;
  bool is_open = bundles > 0 && enter(0);
  while (depth < bundles) {
    if (is_open && choose(depth)) {
      if (steps_ == most_steps) return search_end::gave_up;
      ++steps_;
      state_.put(problem_.bundles[depth], frames_[depth].chosen.node);
      ++depth;
      is_open = depth < bundles && enter(depth);
      continue;
    }
    if (is_open) note_dead_end(depth);
    if (depth == 0) return search_end::impossible;
    --depth;
    const std::uint32_t node = frames_[depth].chosen.node;
    state_.take_back(problem_.bundles[depth], node);
    refute(frames_[depth], node);
    is_open = true;
  }
  return search_end::found;
}

std::vector<placement_decision> placement_search::decisions() const {
  std::vector<placement_decision> all;
  for (const frame& each : frames_) all.push_back(each.chosen);
  return all;
}

placement_solution solve_placement(const placement_problem& problem,
                                   std::uint64_t most_steps) {
  placement_solution made;
  placement_search first(problem);
  // One step for each bundle is no backtracking.
  const std::uint64_t bundles = problem.bundles.size();
  made.end = first.run(capped_sum(most_steps, bundles));
  made.steps = first.steps();
  if (made.end != search_end::found) {
    made.where = first.deepest();
    return made;
  }
  made.decisions = first.decisions();
  const auto rules = static_cast<std::uint32_t>(problem.preferences.size());
  std::vector<std::uint64_t> reached;
  for (std::uint32_t i = 0; i < rules; ++i) reached.push_back(first.measure(i));
  std::uint64_t left = looks_for_better / (problem.nodes.size() + 1);
  for (std::uint32_t i = 0; i < rules; ++i) {
    while (reached[i] > problem.preferences[i].best && left >= bundles) {
      placement_search again(problem);
      for (std::uint32_t j = 0; j < i; ++j) again.limit(j, reached[j]);
      again.limit(i, reached[i] - 1);
      const search_end end = again.run(left);
      left -= std::min(left, again.steps());
      if (end != search_end::found) break;
      made.decisions = again.decisions();
      for (std::uint32_t j = 0; j < rules; ++j) reached[j] = again.measure(j);
    }
  }
  return made;
}

}  // namespace manyworlds::inline v0::detail
