#include "mpmd/placement_texts.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "mpmd/graph_units.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// More are counted, not named.
constexpr std::size_t most_named = 8;

std::string counted(std::uint64_t number, std::string_view one) {
  return fmt::format("{} {}{}", number, one, number == 1 ? "" : "s");
}

/// Returns "a, b and 3 more". Of that many only the first need their names.
std::string names_text(const std::vector<std::string>& names, std::size_t count) {
  if (count <= most_named) return fmt::format("{}", fmt::join(names, ", "));
  return fmt::format("{} and {} more",
                     fmt::join(names.begin(), names.begin() + most_named, ", "),
                     count - most_named);
}
std::string names_text(const std::vector<std::string>& names) {
  return names_text(names, names.size());
}

std::string need_text(const placement_amount& need) {
  std::vector<std::string> parts;
  if (need.gpus > 0) parts.push_back(counted(need.gpus, "gpu"));
  if (need.cpus > 0) parts.push_back(counted(need.cpus, "cpu"));
  if (need.memory > 0) parts.push_back(byte_size_text(need.memory));
  return fmt::format("{}", fmt::join(parts, " and "));
}

/// Returns what is free of what is short.
std::string free_text(const placement_amount& need, const placement_amount& free) {
  std::vector<std::string> parts;
  if (free.gpus < need.gpus) parts.push_back(counted(free.gpus, "gpu"));
  if (free.cpus < need.cpus) parts.push_back(counted(free.cpus, "cpu"));
  if (free.memory < need.memory) parts.push_back(byte_size_text(free.memory));
  return fmt::format("{} free", fmt::join(parts, " and "));
}

/// Returns an instance of that party on the node.
std::string occupant(const placement_problem& problem, const dead_end& where,
                     const node_verdict& verdict, std::uint32_t node) {
  const separation& rule = problem.separations[verdict.separation];
  const auto belongs = [&](std::uint32_t role) {
    const std::uint32_t party = rule.party_of(role);
    return verdict.party == blocked ? party != none : party == verdict.party;
  };
  for (const standing_instance& each : problem.standing)
    if (each.node == node && belongs(each.role)) return each.id.text();
  for (std::size_t i = 0; i < where.nodes_of.size(); ++i) {
    if (where.nodes_of[i] != node) continue;
    for (const std::uint32_t one : problem.bundles[i].wanted)
      if (belongs(problem.wanted_roles[one])) return problem.wanted[one].text();
  }
  return "another";
}

/// What speaks against nodes.
struct objection {
  std::string why;
  std::string occupant;  ///< on the first of them, where others stand in the way
  std::vector<std::string> nodes;

  [[nodiscard]] std::string text() const {
    std::string made = fmt::format("; {}: {}", names_text(nodes), why);
    if (occupant.empty()) return made;
    return made + fmt::format(" ({} {} there)", occupant,
                              nodes.size() == 1 ? "is" : "and others are");
  }
};

std::string lacking_labels(const placement_problem& problem,
                           const placement_bundle& bundle, std::uint32_t node) {
  std::vector<std::string> lacking;
  const std::vector<std::string>& there = problem.nodes[node].given->labels;
  for (const std::uint32_t one : bundle.wanted) {
    for (const std::string& label : problem.role_of(one).needs.labels) {
      if (std::find(there.begin(), there.end(), label) == there.end() &&
          std::find(lacking.begin(), lacking.end(), label) == lacking.end())
        lacking.push_back(label);
    }
  }
  return names_text(lacking);
}

objection objection_to(const placement_problem& problem, const dead_end& where,
                       std::uint32_t node) {
  const placement_bundle& bundle = problem.bundles[where.bundle];
  const node_verdict& verdict = where.verdicts[node];
  switch (verdict.what) {
    case obstacle::labels:
      return {"no label " + lacking_labels(problem, bundle, node), {}, {}};
    case obstacle::separated: {
      const graph_place& rule = *problem.separations[verdict.separation].rule;
      std::string there = occupant(problem, where, verdict, node);
      std::string why = rule.rule == place_rule::exclusive
                            ? rule_text(rule)
                            : "apart from " + there.substr(0, there.rfind('.'));
      return {std::move(why), std::move(there), {}};
    }
    case obstacle::kept: {
      const separation& rule = problem.separations[verdict.separation];
      return {fmt::format("kept for {} ({})", rule.parties[verdict.party].name,
                          rule_text(*rule.rule)),
              {},
              {}};
    }
    case obstacle::resources:
      return {free_text(bundle.need, where.free[node]), {}, {}};
    case obstacle::nothing:
    case obstacle::fixed:
    case obstacle::preference:
    case obstacle::tried:
      break;
  }
  return {"not tried", {}, {}};
}

}  // namespace

std::optional<std::string> total_shortage(const placement_problem& problem) {
  placement_amount need;
  placement_amount free;
  for (const placement_bundle& each : problem.bundles) need += each.need;
  for (const placement_node& each : problem.nodes) free += each.free;
  const bool is_taken = !problem.standing.empty();
  std::vector<std::string> parts;
  const auto compare = [&](std::uint64_t needed, std::uint64_t there,
                           std::string_view one) {
    if (needed <= there) return;
    parts.push_back(fmt::format("short of {}: {} needed, {} {}",
                                counted(needed - there, one), needed, there,
                                is_taken ? "free" : "there"));
  };
  compare(need.gpus, free.gpus, "gpu");
  compare(need.cpus, free.cpus, "cpu");
  if (need.memory > free.memory) {
    parts.push_back(fmt::format("short of {} of memory: {} needed, {} {}",
                                byte_size_text(need.memory - free.memory),
                                byte_size_text(need.memory), byte_size_text(free.memory),
                                is_taken ? "free" : "there"));
  }
  if (parts.empty()) return std::nullopt;
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::optional<std::string> node_shortage(const placement_problem& problem) {
  for (const separation& rule : problem.separations) {
    std::uint64_t needed = 0;
    std::vector<char> useful(problem.nodes.size(), 0);
    std::vector<std::string> parts;
    bool is_known = true;
    for (const separated_party& party : rule.parties) {
      if (party.bundles == 0) continue;
      const auto there = std::count(party.useful.begin(), party.useful.end(), 1);
      // What does not fit even alone has a better text than this.
      if (party.fewest > static_cast<std::uint64_t>(there)) is_known = false;
      needed += party.fewest;
      parts.push_back(fmt::format("{} {}", party.name, party.fewest));
      for (std::size_t n = 0; n < useful.size(); ++n)
        if (party.useful[n] != 0) useful[n] = 1;
    }
    const auto there =
        static_cast<std::uint64_t>(std::count(useful.begin(), useful.end(), 1));
    if (!is_known || needed <= there) continue;
    return fmt::format("{} needs {} ({}), {} room", rule_text(*rule.rule),
                       counted(needed, "node"), names_text(parts),
                       there == 1 ? "1 has" : fmt::format("{} have", there));
  }
  return std::nullopt;
}

std::string dead_end_text(const placement_problem& problem, const dead_end& where) {
  const placement_bundle& bundle = problem.bundles[where.bundle];
  std::vector<std::string> members;
  for (const std::uint32_t one : bundle.wanted)
    members.push_back(problem.wanted[one].text());
  std::string text = fmt::format("{} cannot be placed", names_text(members));
  if (members.size() > 1) text += " on one node";
  const std::string need = need_text(bundle.need);
  if (!need.empty())
    text += fmt::format(": {} {}", members.size() > 1 ? "they need" : "needs", need);
  if (bundle.fixed_to != none) {
    text += fmt::format("{} beside {}", need.empty() ? ":" : "",
                        problem.standing[bundle.standing.front()].id.text());
  }
  // Nodes with one objection stand together, in the order of the first of each.
  std::vector<objection> all;
  for (std::uint32_t n = 0; n < problem.nodes.size(); ++n) {
    if (bundle.fixed_to != none && bundle.fixed_to != n) continue;
    objection one = objection_to(problem, where, n);
    const auto same = std::find_if(all.begin(), all.end(), [&](const objection& each) {
      return each.why == one.why;
    });
    objection& of = same == all.end() ? all.emplace_back(std::move(one)) : *same;
    of.nodes.push_back(problem.name_of_node(n));
  }
  std::size_t unnamed = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i < most_named) {
      text += all[i].text();
    } else {
      unnamed += all[i].nodes.size();
    }
  }
  if (unnamed > 0) text += fmt::format("; and {} more nodes", unnamed);
  if (all.empty()) text += "; there is no node";
  return text;
}

/// Returns the names of the others of a bundle. Each of its members is told them, so that
/// not all are looked at each time.
static std::string others_text(const placement_problem& problem,
                               const placement_bundle& bundle, std::uint32_t wanted_one) {
  const std::size_t count = bundle.standing.size() + bundle.wanted.size() - 1;
  std::vector<std::string> names;
  const auto is_full = [&] { return names.size() == most_named; };
  for (std::size_t i = 0; i < bundle.standing.size() && !is_full(); ++i)
    names.push_back(problem.standing[bundle.standing[i]].id.text());
  for (std::size_t i = 0; i < bundle.wanted.size() && !is_full(); ++i)
    if (bundle.wanted[i] != wanted_one)
      names.push_back(problem.wanted[bundle.wanted[i]].text());
  return names_text(names, count);
}

std::string decision_text(const placement_problem& problem,
                          const placement_bundle& bundle, std::uint32_t wanted_one,
                          const placement_decision& decision) {
  std::vector<std::string> parts;
  const bool is_alone = bundle.standing.empty() && bundle.wanted.size() == 1;
  if (!is_alone)
    parts.push_back("together with " + others_text(problem, bundle, wanted_one));
  if (bundle.fixed_to != none) return parts.front();

  if (decision.separation != none)
    parts.push_back(rule_text(*problem.separations[decision.separation].rule));
  const auto preferred = [&](bool packs) {
    for (const auto& [which, count] : bundle.preferred) {
      const preference& each = problem.preferences[which];
      if (each.packs() == packs) return rule_text(*each.rule);
    }
    return std::string();
  };
  if (decision.is_only) {
    parts.emplace_back("the only node that fits");
  } else if (decision.is_last) {
    parts.emplace_back("others that fit led nowhere");
  } else if (decision.preference != none) {
    parts.push_back(rule_text(*problem.preferences[decision.preference].rule) +
                    ", holds best there");
  } else if (decision.reason == rank_reasons) {
    parts.emplace_back("the first of equal nodes");
  } else {
    switch (static_cast<rank_reason>(decision.reason)) {
      case rank_reason::quota:
        parts.emplace_back("leaves nodes to others");
        break;
      case rank_reason::pack:
        parts.push_back(preferred(true) + ", begun there");
        break;
      case rank_reason::cover:
        parts.push_back(preferred(true) + ", most fits there");
        break;
      case rank_reason::spread:
        parts.push_back(preferred(false) + ", fewest there");
        break;
      case rank_reason::sharers:
        parts.emplace_back("the fewest share its CPUs");
        break;
      case rank_reason::gpus:
      case rank_reason::rest:
        parts.emplace_back("best fit");
        break;
    }
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace manyworlds::inline v0::detail
