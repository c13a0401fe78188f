#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "manyworlds/mpmd/job_placement.hpp"
#include "mpmd/placement_bounds.hpp"
#include "mpmd/placement_devices.hpp"
#include "mpmd/placement_problem.hpp"
#include "mpmd/placement_search.hpp"
#include "mpmd/placement_texts.hpp"

namespace manyworlds::inline v0 {

namespace {

using detail::placement_problem;
using detail::search_end;

// A step looks at each node at most, and the master waits: so looks are bounded, and not
// steps. A million of them take about 0.1 s. One step for each bundle comes on top.
constexpr std::uint64_t most_looks = 2'000'000;
/// A search with one rule less says whether the rule is at fault: it is not worth as
/// much.
constexpr std::uint64_t looks_without_a_rule = 200'000;
/// All these searches together look no more often. Where they would, no rule is blamed.
constexpr std::uint64_t looks_for_rules = 4'000'000;
/// With more it takes too long to leave each out once.
constexpr std::size_t most_blamed_rules = 32;

struct given {
  const job_graph& graph;
  std::span<const node_resources> nodes;
  std::span<const instance_id> wanted;
  std::span<const instance_place> taken;
};

std::uint64_t looks_of_step(const placement_problem& problem) {
  return problem.nodes.size() + 1;
}

/// Returns the rules without which it could be placed, and of which none can be left out:
/// those that are in conflict.
std::vector<const graph_place*> rules_at_fault(const given& all,
                                               std::vector<const graph_place*> rules) {
  std::erase_if(rules, [](const graph_place* rule) {
    return rule->rule == place_rule::pack || rule->rule == place_rule::spread;
  });
  if (rules.size() > most_blamed_rules) return {};
  std::uint64_t left = looks_for_rules;
  for (std::size_t i = 0; i < rules.size();) {
    std::vector<const graph_place*> fewer = rules;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    const placement_problem problem = detail::make_placement_problem(
        all.graph, all.nodes, all.wanted, all.taken, fewer);
    bool is_needless =
        detail::node_shortage(problem).has_value() || detail::exceeds_all_nodes(problem);
    if (!is_needless) {
      const std::uint64_t looks = looks_of_step(problem);
      if (left / looks < problem.bundles.size()) return {};
      const detail::placement_solution found =
          detail::solve_placement(problem, looks_without_a_rule / looks);
      left -= std::min(left, found.steps * looks);
      is_needless = found.end != search_end::found;
    }
    if (is_needless) {
      rules = std::move(fewer);
    } else {
      ++i;
    }
  }
  return rules;
}

[[noreturn]] void refuse(const given& all, const std::vector<const graph_place*>& rules,
                         const std::string& why) {
  std::vector<std::string> blamed;
  for (const graph_place* const each : rules_at_fault(all, rules))
    blamed.push_back(detail::rule_text(*each));
  if (blamed.empty()) throw placement_error(why);
  throw placement_error(fmt::format(
      "{}; {}: {}", why, blamed.size() == 1 ? "by the rule" : "rules in conflict",
      fmt::join(blamed, " and ")));
}

}  // namespace

std::vector<instance_place> place_instances(const job_graph& graph,
                                            std::span<const node_resources> nodes,
                                            std::span<const instance_id> wanted,
                                            std::span<const instance_place> taken) {
  const given all{graph, nodes, wanted, taken};
  std::vector<const graph_place*> rules;
  for (const graph_place& each : graph.places()) rules.push_back(&each);
  const placement_problem problem =
      detail::make_placement_problem(graph, nodes, wanted, taken, rules);
  if (const auto shortage = detail::total_shortage(problem))
    throw placement_error(
        fmt::format("{} cannot be placed: {}", graph.name(), *shortage));
  if (const auto shortage = detail::node_shortage(problem)) {
    refuse(all, rules, fmt::format("{} cannot be placed: {}", graph.name(), *shortage));
  }
  // Where it is known to be impossible, the search only finds for what room is short.
  const bool is_impossible = detail::exceeds_all_nodes(problem);
  const detail::placement_solution found = detail::solve_placement(
      problem, is_impossible ? 0 : most_looks / looks_of_step(problem));
  if (found.end != search_end::found) {
    std::string why = detail::dead_end_text(problem, found.where);
    if (found.end == search_end::gave_up && !is_impossible)
      why += fmt::format(" (given up after {} steps)", found.steps);
    refuse(all, rules, why);
  }

  std::vector<instance_place> places(wanted.size());
  std::vector<std::uint32_t> node_of;
  for (std::size_t i = 0; i < problem.bundles.size(); ++i) {
    const detail::placement_bundle& bundle = problem.bundles[i];
    const std::uint32_t node = found.decisions[i].node;
    node_of.push_back(node);
    for (const std::uint32_t one : bundle.wanted) {
      places[one].instance = wanted[one];
      places[one].node = problem.name_of_node(node);
      places[one].memory = problem.role_of(one).needs.memory;
      places[one].why = detail::decision_text(problem, bundle, one, found.decisions[i]);
    }
  }
  detail::give_devices(problem, taken, node_of, places);
  return places;
}

}  // namespace manyworlds::inline v0
