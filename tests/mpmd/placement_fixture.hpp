// Graphs and nodes to place, and a checker of placements that shares no code with what
// places.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "manyworlds/mpmd.hpp"

namespace manyworlds::mpmd_tests {

inline constexpr std::uint64_t gib = std::uint64_t{1} << 30;

/// A node with that many CPUs on each NUMA node, and the GPUs of each.
inline node_resources node_of(std::string name, const std::vector<std::uint32_t>& cpus,
                              std::uint64_t memory = 64 * gib,
                              const std::vector<std::uint32_t>& gpus = {},
                              std::vector<std::string> labels = {}) {
  node_resources made{std::move(name), {}, memory, {}, std::move(labels)};
  std::uint32_t next = 0;
  for (std::uint32_t numa = 0; numa < cpus.size(); ++numa) {
    made.cpus.push_back({numa, {}});
    for (std::uint32_t i = 0; i < cpus[numa]; ++i)
      made.cpus.back().cpus.push_back(next++);
  }
  for (std::uint32_t numa = 0; numa < gpus.size(); ++numa)
    for (std::uint32_t i = 0; i < gpus[numa]; ++i)
      made.gpus.push_back(
          {made.name + "-gpu" + std::to_string(made.gpus.size()), 80 * gib, numa});
  return made;
}

/// Adds a role of that many instances, each with these needs.
inline graph_role& add_role(job_graph& graph, std::string_view name, std::uint32_t count,
                            role_needs needs = {}) {
  return graph.role(name).run({"./program"}).count(count).need(std::move(needs));
}

inline std::vector<instance_id> all_of(const job_graph& graph) {
  std::vector<instance_id> all;
  for (const graph_role& role : graph.roles())
    for (std::uint32_t i = 0; i < role.counts.start; ++i) all.push_back({role.name, i});
  return all;
}

inline std::vector<instance_place> place_all(const job_graph& graph,
                                             const std::vector<node_resources>& nodes) {
  return place_instances(graph, nodes, all_of(graph));
}

/// Returns why it cannot be placed; nothing if it can.
inline std::string why_not(const job_graph& graph,
                           const std::vector<node_resources>& nodes,
                           const std::vector<instance_id>& wanted,
                           const std::vector<instance_place>& taken = {}) {
  try {
    static_cast<void>(place_instances(graph, nodes, wanted, taken));
  } catch (const placement_error& e) {
    return e.what();
  }
  return "";
}
inline std::string why_not(const job_graph& graph,
                           const std::vector<node_resources>& nodes) {
  return why_not(graph, nodes, all_of(graph));
}

inline bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

inline const instance_place& place_of(const std::vector<instance_place>& places,
                                      std::string_view instance) {
  const auto found = std::find_if(places.begin(), places.end(), [&](const auto& each) {
    return each.instance.text() == instance;
  });
  REQUIRE(found != places.end());
  return *found;
}

/// Returns "a.0 n1, b.0 n2".
inline std::string nodes_text(const std::vector<instance_place>& places) {
  std::string all;
  for (const instance_place& each : places)
    all += (all.empty() ? "" : ", ") + each.instance.text() + " " + each.node;
  return all;
}

/// Returns the instances of some roles on each node.
inline std::map<std::string, std::uint64_t> counts_of(
    const std::vector<instance_place>& places, const std::vector<std::string>& roles) {
  std::map<std::string, std::uint64_t> counts;
  for (const instance_place& each : places)
    if (std::find(roles.begin(), roles.end(), each.instance.role) != roles.end())
      ++counts[each.node];
  return counts;
}

/// Which instance is on which node: all that rules of nodes speak about.
using assignment = std::vector<std::pair<instance_id, std::string>>;

class placement_checker {
 public:
  placement_checker(const job_graph& graph, const std::vector<node_resources>& nodes)
      : graph_(graph) {
    for (const node_resources& each : nodes) nodes_[each.name] = &each;
  }

  /// Returns the rule of nodes that does not hold between two instances.
  [[nodiscard]] std::string broken_between(const instance_id& a, const std::string& on_a,
                                           const instance_id& b,
                                           const std::string& on_b) const {
    const bool are_near = on_a == on_b;
    const std::string both = a.text() + " on " + on_a + ", " + b.text() + " on " + on_b;
    if (a.role == b.role) {
      const std::uint32_t group = graph_.find_role(a.role)->per_group;
      if (a.index / group == b.index / group && !are_near) return "per_group: " + both;
      return "";
    }
    for (const graph_place& rule : graph_.places()) {
      const bool has_a = is_of(rule, a);
      const bool has_b = is_of(rule, b);
      const bool is_of_nodes = rule.level == place_level::node;
      if (rule.rule == place_rule::together && has_a && has_b && a.index == b.index &&
          !are_near)
        return "together: " + both;
      if (rule.rule == place_rule::apart && is_of_nodes && has_a && has_b && are_near)
        return "apart: " + both;
      if (rule.rule == place_rule::exclusive && is_of_nodes && has_a != has_b && are_near)
        return "exclusive: " + both;
    }
    return "";
  }

  /// Says whether the two must have the same GPUs.
  [[nodiscard]] bool share_gpus(const instance_id& a, const instance_id& b) const {
    if (a.index != b.index) return false;
    // By a chain of rules too.
    std::set<std::string> reached{a.role};
    for (std::size_t before = 0; before != reached.size();) {
      before = reached.size();
      for (const graph_place& rule : graph_.places()) {
        if (rule.rule != place_rule::together || rule.level != place_level::gpu) continue;
        const bool meets =
            std::any_of(rule.roles.begin(), rule.roles.end(),
                        [&](const std::string& role) { return reached.contains(role); });
        if (meets) reached.insert(rule.roles.begin(), rule.roles.end());
      }
    }
    return reached.contains(b.role);
  }

  /// Says whether that is possible: every rule holds, and nothing is given twice. What
  /// has a rule against its GPUs being shared, and must share them, is not.
  [[nodiscard]] std::string broken_assignment(const assignment& all) const {
    std::map<std::string, role_needs> sums;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto& [id, on] = all[i];
      const role_needs& needs = graph_.find_role(id.role)->needs;
      for (const std::string& label : needs.labels) {
        const std::vector<std::string>& there = nodes_.at(on)->labels;
        if (std::find(there.begin(), there.end(), label) == there.end())
          return id.text() + " on " + on + " without " + label;
      }
      sums[on].cpus += needs.cpus;
      sums[on].memory += needs.memory;
      bool has_gpus = false;
      for (std::size_t j = 0; j < i; ++j) {
        std::string why = broken_between(all[j].first, all[j].second, id, on);
        if (!why.empty()) return why;
        if (!share_gpus(all[j].first, id)) continue;
        has_gpus = true;
        for (const graph_place& rule : graph_.places())
          if (rule.level == place_level::gpu && parts(rule, all[j].first, id))
            return "on one GPU by a rule, and apart there by another";
      }
      // All that share GPUs need the same number here.
      if (!has_gpus) sums[on].gpus += needs.gpus;
    }
    for (const auto& [on, sum] : sums) {
      const node_resources& node = *nodes_.at(on);
      if (sum.cpus > node.cpu_count()) return "CPUs of " + on;
      if (sum.memory > node.memory) return "memory of " + on;
      if (sum.gpus > node.gpus.size()) return "GPUs of " + on;
    }
    return "";
  }

  /// Returns what is wrong with a placement beside those that were taken.
  [[nodiscard]] std::string broken(const std::vector<instance_id>& wanted,
                                   const std::vector<instance_place>& taken,
                                   const std::vector<instance_place>& places) const {
    if (places.size() != wanted.size()) return "not each is placed";
    for (std::size_t i = 0; i < wanted.size(); ++i)
      if (places[i].instance != wanted[i]) return "in another order";
    std::vector<instance_place> all = taken;
    all.insert(all.end(), places.begin(), places.end());
    assignment of_all;
    std::map<std::pair<std::string, std::uint32_t>, std::string> cpu_of;
    for (const instance_place& each : all) {
      const std::string name = each.instance.text();
      const auto node = nodes_.find(each.node);
      if (node == nodes_.end()) return name + " is on no node";
      of_all.emplace_back(each.instance, each.node);
      const role_needs& needs = graph_.find_role(each.instance.role)->needs;
      if (each.memory != needs.memory) return name + " has other memory";
      if (each.cpus.size() != needs.cpus) return name + " has another number of CPUs";
      if (each.gpus.size() != needs.gpus) return name + " has another number of GPUs";
      if (each.why.empty()) return name + " is there without a reason";
      for (const std::uint32_t cpu : each.cpus) {
        if (!has_cpu(*node->second, cpu)) return name + " has a CPU that is not there";
        if (!cpu_of.emplace(std::pair(each.node, cpu), name).second)
          return name + " has a CPU of " + cpu_of[{each.node, cpu}];
      }
      for (const std::string& gpu : each.gpus)
        if (!has_gpu(*node->second, gpu)) return name + " has a GPU that is not there";
    }
    std::string why = broken_gpus(all);
    return why.empty() ? broken_assignment(of_all) : why;
  }

 private:
  [[nodiscard]] static bool is_of(const graph_place& rule, const instance_id& id) {
    return std::find(rule.roles.begin(), rule.roles.end(), id.role) != rule.roles.end();
  }
  [[nodiscard]] static bool parts(const graph_place& rule, const instance_id& a,
                                  const instance_id& b) {
    const bool has_a = is_of(rule, a);
    const bool has_b = is_of(rule, b);
    return (rule.rule == place_rule::apart && has_a && has_b) ||
           (rule.rule == place_rule::exclusive && has_a != has_b);
  }
  [[nodiscard]] static bool has_cpu(const node_resources& node, std::uint32_t cpu) {
    return std::any_of(node.cpus.begin(), node.cpus.end(), [&](const cpu_group& group) {
      return std::find(group.cpus.begin(), group.cpus.end(), cpu) != group.cpus.end();
    });
  }
  [[nodiscard]] static bool has_gpu(const node_resources& node, const std::string& uuid) {
    return std::any_of(node.gpus.begin(), node.gpus.end(),
                       [&](const gpu_resource& gpu) { return gpu.uuid == uuid; });
  }

  [[nodiscard]] std::string broken_gpus(const std::vector<instance_place>& all) const {
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::set<std::string> own(all[i].gpus.begin(), all[i].gpus.end());
      if (own.size() != all[i].gpus.size())
        return all[i].instance.text() + " has a GPU twice";
      for (std::size_t j = 0; j < i; ++j) {
        const bool meet =
            std::any_of(all[j].gpus.begin(), all[j].gpus.end(),
                        [&](const std::string& g) { return own.contains(g); });
        const std::string both =
            all[j].instance.text() + " and " + all[i].instance.text();
        const bool share = share_gpus(all[j].instance, all[i].instance);
        if (meet && !share) return both + " share a GPU";
        if (share && all[i].gpus != all[j].gpus) return both + " do not share their GPUs";
      }
    }
    return "";
  }

  const job_graph& graph_;
  std::map<std::string, const node_resources*> nodes_;
};

/// Returns what is wrong with it; the graph is placed whole.
inline std::string broken(const job_graph& graph,
                          const std::vector<node_resources>& nodes,
                          const std::vector<instance_place>& places) {
  return placement_checker(graph, nodes).broken(all_of(graph), {}, places);
}

}  // namespace manyworlds::mpmd_tests
