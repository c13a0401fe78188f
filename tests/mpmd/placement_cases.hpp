// Random graphs on random nodes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "placement_fixture.hpp"

namespace manyworlds::mpmd_tests {

class dice {
 public:
  explicit dice(std::uint32_t seed) : engine_(seed) {}
  /// Returns a number from 0 to `last`; the same everywhere.
  std::uint32_t upto(std::uint32_t last) {
    return static_cast<std::uint32_t>(engine_() % (std::uint64_t{last} + 1));
  }
  bool one_in(std::uint32_t n) { return upto(n - 1) == 0; }

 private:
  std::mt19937_64 engine_;
};

struct random_case {
  job_graph graph{"random"};
  std::vector<node_resources> nodes;
  std::vector<instance_id> wanted;
  std::vector<instance_place> taken;
};

struct case_bounds {
  std::uint32_t nodes;
  std::uint32_t roles;
  std::uint32_t instances;
  bool prefers = true;  ///< with rules pack and spread
};

inline const std::vector<std::string> role_names = {"a", "b", "c", "d", "e", "f"};

inline void add_roles(random_case& made, dice& any, const case_bounds& most) {
  const std::uint32_t roles = 1 + any.upto(most.roles - 1);
  std::uint32_t left = most.instances;
  for (std::uint32_t i = 0; i < roles && left > 0; ++i) {
    role_needs needs{any.upto(3), any.upto(4) * gib, any.one_in(2) ? any.upto(2) : 0, {}};
    if (any.one_in(4)) needs.labels = {any.one_in(2) ? "fast" : "near"};
    const std::uint32_t count =
        1 + any.upto(std::min(left, most.instances / roles + 1) - 1);
    graph_role& role = add_role(made.graph, role_names[i], count, needs);
    if (count % 2 == 0 && any.one_in(4)) role.per_group = 2;
    left -= count;
  }
}

inline void add_rules(random_case& made, dice& any, bool prefers) {
  const std::vector<graph_role>& roles = made.graph.roles();
  const std::uint32_t rules = any.upto(3);
  for (std::uint32_t i = 0; i < rules; ++i) {
    std::vector<std::string> names;
    for (const graph_role& each : roles)
      if (any.one_in(2)) names.push_back(each.name);
    if (names.empty()) continue;
    const auto rule = static_cast<place_rule>(any.upto(4));
    const bool is_preference = rule == place_rule::pack || rule == place_rule::spread;
    if (is_preference && !prefers) continue;
    const bool is_gpu = any.one_in(3) && !is_preference;
    // What shares GPUs needs the same number of them.
    if (rule == place_rule::together && is_gpu) {
      for (const std::string& name : names) made.graph.role(name).needs.gpus = 1;
    }
    made.graph.place(std::move(names), rule,
                     is_gpu ? place_level::gpu : place_level::node);
  }
  // A rule may have come after one that it would have made unequal.
  for (const graph_place& each : made.graph.places()) {
    if (each.rule != place_rule::together || each.level != place_level::gpu) continue;
    for (const std::string& name : each.roles) made.graph.role(name).needs.gpus = 1;
  }
}

inline random_case random_of(std::uint32_t seed, const case_bounds& most) {
  dice any(seed);
  random_case made;
  add_roles(made, any, most);
  add_rules(made, any, most.prefers);
  const std::uint32_t nodes = 1 + any.upto(most.nodes - 1);
  for (std::uint32_t i = 0; i < nodes; ++i) {
    const std::string name = "n" + std::to_string(i);
    // Nodes are often alike, and a search that leaves out the like of what it tried must
    // not take others for such.
    if (i > 0 && any.one_in(2)) {
      made.nodes.push_back(made.nodes[any.upto(i - 1)]);
      made.nodes.back().name = name;
      // What no instance can need makes no difference.
      made.nodes.back().memory += i * (gib / 64);
      for (gpu_resource& gpu : made.nodes.back().gpus)
        gpu.uuid = name + gpu.uuid.substr(gpu.uuid.find('-'));
      continue;
    }
    std::vector<std::string> labels;
    if (any.one_in(2)) labels.emplace_back("fast");
    if (any.one_in(2)) labels.emplace_back("near");
    made.nodes.push_back(node_of(name, {1 + any.upto(6), any.upto(5)},
                                 (3 + any.upto(20)) * gib, {any.upto(3), any.upto(3)},
                                 std::move(labels)));
  }
  made.wanted = all_of(made.graph);
  // Some stand already, where that is possible at all.
  if (any.one_in(2)) {
    std::vector<instance_id> first;
    std::vector<instance_id> rest;
    for (const instance_id& each : made.wanted)
      (any.one_in(2) ? first : rest).push_back(each);
    if (why_not(made.graph, made.nodes, first).empty()) {
      made.taken = place_instances(made.graph, made.nodes, first);
      made.wanted = rest;
    }
  }
  return made;
}

}  // namespace manyworlds::mpmd_tests
