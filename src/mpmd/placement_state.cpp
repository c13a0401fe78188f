#include "mpmd/placement_state.hpp"

#include <algorithm>
#include <array>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// Returns a thousandth of the whole that a part is, at most all of it.
std::uint64_t thousandths(std::uint64_t part, std::uint64_t whole) {
  if (part >= whole) return 1000;
  return static_cast<std::uint64_t>(1000.0 * static_cast<double>(part) /
                                    static_cast<double>(whole));
}

/// Returns how much of what is needed would fit.
std::uint64_t coverage(const placement_amount& free, const placement_amount& need) {
  return std::min({thousandths(free.cpus, need.cpus),
                   thousandths(free.memory, need.memory),
                   thousandths(free.gpus, need.gpus)});
}

/// Returns what makes a thousand of the largest, so that CPUs and memory can be added.
double weight_of(std::uint64_t largest) {
  return largest == 0 ? 0.0 : 1000.0 / static_cast<double>(largest);
}

}  // namespace

placement_state::placement_state(const placement_problem& problem, std::size_t few)
    : problem_(problem),
      nodes_(problem.nodes.size()),
      role_counts_(problem.nodes.size() * problem.graph->roles().size(), 0),
      cpu_weight_(weight_of(problem.largest.cpus)),
      memory_weight_(weight_of(problem.largest.memory)),
      has_classes_(nodes_.size() > few) {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    nodes_[i].free = problem.nodes[i].free;
    nodes_[i].cpus = std::max<std::uint64_t>(problem.nodes[i].given->cpu_count(), 1);
  }
  for (const standing_instance& each : problem.standing)
    if (each.node != none && each.cpus == 0) ++nodes_[each.node].sharers;
  for (std::uint32_t n = 0; n < nodes_.size() && has_classes_; ++n)
    classes_.add(facts_of(n));
  for (const separation& each : problem.separations) start_separation(each);
  for (const preference& each : problem.preferences) start_preference(each);
}

void placement_state::start_separation(const separation& rule) {
  separation_state state;
  state.claims.resize(nodes_.size());
  state.begun.resize(rule.parties.size());
  const std::vector<std::uint32_t> there = standing_parties(problem_, rule);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    // What stands is never taken back.
    if (there[i] != none) state.claims[i] = {there[i], 1};
    if (there[i] < rule.parties.size()) ++state.begun[there[i]];
  }
  for (const separated_party& party : rule.parties) {
    const auto useful = static_cast<std::uint32_t>(
        std::count(party.useful.begin(), party.useful.end(), 1));
    state.available.push_back(useful);
    state.needed.push_back(std::min(party.fewest, useful));
  }
  separated_.push_back(std::move(state));
}

void placement_state::start_preference(const preference& rule) {
  preference_state state;
  state.held.resize(nodes_.size());
  for (const standing_instance& each : problem_.standing) {
    if (each.node != none && each.role != none && rule.has_role[each.role] != 0)
      hold(state, each.node, 1);
  }
  state.left = rule.instances;
  state.need = rule.need;
  preferred_.push_back(std::move(state));
}

void placement_state::sort(std::uint32_t node) {
  if (has_classes_) classes_.move(node, facts_of(node));
}

/// What separations and preferences know of a node follows from its kind and the roles
/// that were placed there. Of its memory counts how many units of what bundles need are
/// free, and a rough rest: otherwise machines with a few MiB more or less would be in
/// classes of their own.
node_classes::node_facts placement_state::facts_of(std::uint32_t node) const {
  const node_state& there = nodes_[node];
  const std::size_t roles = problem_.graph->roles().size();
  const std::array all{std::uint64_t{problem_.nodes[node].kind},
                       there.cpus,
                       there.sharers,
                       there.free.cpus,
                       there.free.gpus,
                       problem_.memory_units(there.free.memory),
                       rest_of_memory(node)};
  node_classes::node_facts made;
  made.reserve(all.size() + roles);
  made.assign(all.begin(), all.end());
  const auto first = role_counts_.begin() + static_cast<std::ptrdiff_t>(node * roles);
  made.insert(made.end(), first, first + static_cast<std::ptrdiff_t>(roles));
  return made;
}

void placement_state::hold(preference_state& state, std::uint32_t node,
                           std::uint64_t instances) {
  std::uint64_t& held = state.held[node];
  if (held == 0) ++state.used_nodes;
  state.squares += (2 * held + instances) * instances;
  held += instances;
}

void placement_state::drop(preference_state& state, std::uint32_t node,
                           std::uint64_t instances) {
  std::uint64_t& held = state.held[node];
  MW_ASSERT(held >= instances, "what is taken back was placed");
  held -= instances;
  state.squares -= (2 * held + instances) * instances;
  if (held == 0) --state.used_nodes;
}

void placement_state::put(const placement_bundle& bundle, std::uint32_t node) {
  const std::size_t roles = problem_.graph->roles().size();
  MW_ASSERT(nodes_[node].free.covers(bundle.need), "a bundle is placed where it fits");
  nodes_[node].free -= bundle.need;
  nodes_[node].sharers += bundle.sharers;
  for (const std::uint32_t one : bundle.wanted)
    ++role_counts_[node * roles + problem_.wanted_roles[one]];
  for (const auto& [which, party] : bundle.parties) {
    separation_state& state = separated_[which];
    claim& there = state.claims[node];
    if (there.bundles++ > 0) continue;
    there.party = party;
    ++state.begun[party];
    const std::vector<separated_party>& parties = problem_.separations[which].parties;
    for (std::uint32_t other = 0; other < parties.size(); ++other)
      if (other != party && parties[other].useful[node] != 0) --state.available[other];
  }
  for (const auto& [which, count] : bundle.preferred) {
    preference_state& state = preferred_[which];
    hold(state, node, count);
    state.left -= count;
    state.need -= bundle.need;
  }
  sort(node);
}

void placement_state::take_back(const placement_bundle& bundle, std::uint32_t node) {
  const std::size_t roles = problem_.graph->roles().size();
  nodes_[node].free += bundle.need;
  nodes_[node].sharers -= bundle.sharers;
  for (const std::uint32_t one : bundle.wanted)
    --role_counts_[node * roles + problem_.wanted_roles[one]];
  for (const auto& [which, party] : bundle.parties) {
    separation_state& state = separated_[which];
    claim& there = state.claims[node];
    MW_ASSERT(there.bundles > 0 && there.party == party, "its party is there");
    if (--there.bundles > 0) continue;
    there.party = none;
    --state.begun[party];
    const std::vector<separated_party>& parties = problem_.separations[which].parties;
    for (std::uint32_t other = 0; other < parties.size(); ++other)
      if (other != party && parties[other].useful[node] != 0) ++state.available[other];
  }
  for (const auto& [which, count] : bundle.preferred) {
    preference_state& state = preferred_[which];
    drop(state, node, count);
    state.left += count;
    state.need += bundle.need;
  }
  sort(node);
}

node_verdict placement_state::judge(const placement_bundle& bundle,
                                    std::uint32_t node) const {
  if (bundle.fixed_to != none && bundle.fixed_to != node) return {obstacle::fixed};
  if (problem_.has_labels[bundle.labels][node] == 0) return {obstacle::labels};
  const node_verdict parties = judge_parties(bundle, node);
  if (parties.what == obstacle::separated) return parties;
  if (!nodes_[node].free.covers(bundle.need)) return {obstacle::resources};
  if (parties.what != obstacle::nothing) return parties;
  const std::uint32_t exceeded = exceeded_limit(bundle, node);
  if (exceeded != none) return {obstacle::preference, none, none, exceeded};
  return {};
}

node_verdict placement_state::judge_parties(const placement_bundle& bundle,
                                            std::uint32_t node) const {
  node_verdict kept;
  for (const auto& [which, party] : bundle.parties) {
    const separation_state& state = separated_[which];
    const claim& there = state.claims[node];
    if (there.bundles > 0) {
      if (there.party == party) continue;
      return {obstacle::separated, which, there.party};
    }
    const std::vector<separated_party>& parties = problem_.separations[which].parties;
    for (std::uint32_t other = 0; other < parties.size(); ++other) {
      if (other == party || parties[other].useful[node] == 0) continue;
      if (state.available[other] <= state.needed[other])
        kept = {obstacle::kept, which, other};
    }
  }
  return kept;
}

std::uint32_t placement_state::exceeded_limit(const placement_bundle& bundle,
                                              std::uint32_t node) const {
  for (const auto& [which, count] : bundle.preferred) {
    const preference_state& state = preferred_[which];
    if (state.most == UINT64_MAX) continue;
    const std::uint64_t held = state.held[node];
    if (problem_.preferences[which].packs()) {
      if (held == 0 && state.used_nodes + 1 > state.most) return which;
    } else {
      // Each that is left adds 1 at least.
      const std::uint64_t after = state.squares + (2 * held + count) * count;
      if (after + (state.left - count) > state.most) return which;
    }
  }
  return none;
}

node_rank placement_state::rank(const placement_bundle& bundle,
                                std::uint32_t node) const {
  node_rank made{};
  const auto at = [&](rank_reason reason) -> std::uint64_t& {
    return made[static_cast<std::size_t>(reason)];
  };
  const node_state& there = nodes_[node];
  for (const auto& [which, party] : bundle.parties) {
    const separation_state& state = separated_[which];
    const bool begins = state.claims[node].bundles == 0;
    if (begins && state.begun[party] >= problem_.separations[which].parties[party].quota)
      ++at(rank_reason::quota);
  }
  for (const auto& [which, count] : bundle.preferred) {
    const preference_state& state = preferred_[which];
    if (!problem_.preferences[which].packs()) {
      at(rank_reason::spread) += state.held[node];
    } else if (state.held[node] == 0) {
      ++at(rank_reason::pack);
      placement_amount usable = there.free;
      usable.memory = problem_.usable_memory(usable.memory);
      at(rank_reason::cover) += 1000 - coverage(usable, state.need);
    }
  }
  if (bundle.sharers > 0) at(rank_reason::sharers) = there.sharers * 4096 / there.cpus;
  at(rank_reason::gpus) = there.free.gpus - bundle.need.gpus;
  const double cpus = static_cast<double>(there.free.cpus - bundle.need.cpus);
  at(rank_reason::rest) =
      static_cast<std::uint64_t>(cpus * cpu_weight_) + rest_of_memory(node);
  return made;
}

std::uint64_t placement_state::rest_of_memory(std::uint32_t node) const {
  return static_cast<std::uint64_t>(static_cast<double>(nodes_[node].free.memory) *
                                    memory_weight_);
}

bool placement_state::are_alike(std::uint32_t a, std::uint32_t b) const {
  if (problem_.nodes[a].kind != problem_.nodes[b].kind) return false;
  const placement_amount& one = nodes_[a].free;
  const placement_amount& other = nodes_[b].free;
  if (one.cpus != other.cpus || one.gpus != other.gpus ||
      problem_.memory_units(one.memory) != problem_.memory_units(other.memory))
    return false;
  const auto roles = static_cast<std::ptrdiff_t>(problem_.graph->roles().size());
  const auto first = role_counts_.begin() + a * roles;
  return std::equal(first, first + roles, role_counts_.begin() + b * roles);
}

bool placement_state::has_room(const placement_bundle& bundle,
                               std::uint64_t count) const {
  std::uint64_t found = 0;
  for (std::uint32_t n = 0; n < nodes_.size() && found < count; ++n) {
    if (judge(bundle, n).what == obstacle::nothing)
      found = capped_sum(found, nodes_[n].free.times(bundle.need));
  }
  return found >= count;
}

std::uint64_t placement_state::measure(std::uint32_t preference) const {
  const preference_state& state = preferred_[preference];
  return problem_.preferences[preference].packs() ? state.used_nodes : state.squares;
}

}  // namespace manyworlds::inline v0::detail
