// Placement problem: bundles, nodes and rules in the form in which they are searched.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "manyworlds/mpmd/job_graph.hpp"
#include "manyworlds/mpmd/job_placement.hpp"
#include "manyworlds/mpmd/node_resources.hpp"

namespace manyworlds::inline v0::detail {

/// Stands for a role, a node or a party that is none.
inline constexpr std::uint32_t none = UINT32_MAX;
/// Stands for the party of a node on which two stand already: no other may come.
inline constexpr std::uint32_t blocked = UINT32_MAX - 1;

/// Adds, up to what 64 bits hold.
[[nodiscard]] constexpr std::uint64_t capped_sum(std::uint64_t a,
                                                 std::uint64_t b) noexcept {
  return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/// What is needed, or free.
struct placement_amount {
  std::uint64_t cpus = 0;
  std::uint64_t memory = 0;
  std::uint64_t gpus = 0;

  [[nodiscard]] bool covers(const placement_amount& need) const noexcept {
    return cpus >= need.cpus && memory >= need.memory && gpus >= need.gpus;
  }
  /// Returns how often that much fits: UINT64_MAX for nothing.
  [[nodiscard]] std::uint64_t times(const placement_amount& need) const noexcept;
  placement_amount& operator+=(const placement_amount& other) noexcept;
  /// Precondition: it covers `other`.
  placement_amount& operator-=(const placement_amount& other) noexcept;

  friend bool operator==(const placement_amount&, const placement_amount&) = default;
};

/// Members of a bundle that hold the same GPUs; most often one alone.
struct gpu_share {
  std::uint32_t gpus = 0;               ///< as many as the member that needs most
  std::vector<std::uint32_t> wanted;    ///< positions in `wanted`
  std::vector<std::uint32_t> standing;  ///< positions in `standing`
  std::vector<std::string> held;        ///< GPUs of those that stand
};

/// What must be on one node: instances that are `together`, or of one group.
struct placement_bundle {
  std::vector<std::uint32_t> wanted;  ///< positions in `wanted`, ascending
  std::vector<gpu_share> shares;
  placement_amount need;
  std::uint32_t sharers = 0;            ///< members without CPUs of their own
  std::uint32_t labels = 0;             ///< which set of labels its node must have
  std::uint32_t form = 0;               ///< bundles of one form can be exchanged
  std::uint32_t fixed_to = none;        ///< the node of members that stand already
  std::vector<std::uint32_t> standing;  ///< these, by positions in `standing`
  /// Pairs of a separation and the party of it that the bundle belongs to.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> parties;
  /// Pairs of a preference and the number of its instances in the bundle.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> preferred;
};

/// An instance that stays where it stands.
struct standing_instance {
  instance_id id;
  std::uint32_t role = none;  ///< none: the graph has no such role
  std::uint32_t node = none;  ///< none: its node is not one of these
  std::uint32_t cpus = 0;
};

/// Roles that may not meet on a node with those of another party of the same separation.
struct separated_party {
  std::string name;
  /// The least number of nodes that its bundles need.
  std::uint32_t fewest = 0;
  /// The number of nodes that it may begin to use before others get none of their share.
  std::uint32_t quota = 0;
  /// By node: whether one of its bundles would fit there, if none stood there yet.
  std::vector<char> useful{};
  std::uint32_t bundles = 0;
};

/// A rule `apart`, or `exclusive`: then its roles are one party and all others another.
struct separation {
  const graph_place* rule = nullptr;
  std::vector<separated_party> parties;
  std::vector<std::uint32_t> party_of_role;
  std::uint32_t party_of_others = none;  ///< of roles that the graph does not have

  [[nodiscard]] std::uint32_t party_of(std::uint32_t role) const {
    return role == none ? party_of_others : party_of_role[role];
  }
};

/// A rule `pack` or `spread`: it excludes no node, and ranks them.
struct preference {
  const graph_place* rule = nullptr;
  std::vector<char> has_role;
  std::uint64_t instances = 0;  ///< that are wanted
  placement_amount need;        ///< of the bundles that it concerns
  /// A measure that no placement is below: used nodes, or the sum of squares of the
  /// instances on each.
  std::uint64_t best = 0;

  [[nodiscard]] bool packs() const noexcept { return rule->rule == place_rule::pack; }
};

struct placement_node {
  const node_resources* given = nullptr;
  placement_amount free;
  /// Nodes of one kind are alike before anything is placed.
  std::uint32_t kind = 0;
};

struct placement_problem {
  const job_graph* graph = nullptr;
  std::unordered_map<std::string_view, std::uint32_t> role_numbers;
  std::span<const instance_id> wanted;
  std::vector<std::uint32_t> wanted_roles;  ///< by position in the graph
  std::vector<placement_node> nodes;
  std::vector<standing_instance> standing;
  /// In the order in which they are placed: those that are fixed, then the largest.
  std::vector<placement_bundle> bundles;
  std::vector<separation> separations;
  std::vector<preference> preferences;
  /// By set of labels and node.
  std::vector<std::vector<char>> has_labels;
  placement_amount largest;  ///< the most that a node has free
  /// What each bundle needs is a multiple of it; 0: none needs any. So what is free
  /// beyond a multiple never matters, and machines with a few MiB more or less are alike.
  std::uint64_t memory_unit = 0;

  /// Returns the position of a role in the graph, or `none`.
  [[nodiscard]] std::uint32_t number_of_role(std::string_view name) const {
    const auto found = role_numbers.find(name);
    return found == role_numbers.end() ? none : found->second;
  }
  [[nodiscard]] const graph_role& role_of(std::uint32_t wanted_one) const {
    return graph->roles()[wanted_roles[wanted_one]];
  }
  [[nodiscard]] std::uint64_t memory_units(std::uint64_t memory) const noexcept {
    return memory_unit == 0 ? 0 : memory / memory_unit;
  }
  /// Returns as much of it as whole units are.
  [[nodiscard]] std::uint64_t usable_memory(std::uint64_t memory) const noexcept {
    return memory_units(memory) * memory_unit;
  }
  [[nodiscard]] const std::string& name_of_node(std::uint32_t node) const {
    return nodes[node].given->name;
  }
};

/// Makes the problem of placing `wanted`, by those rules of the graph. Errors:
/// placement_error where two rules, or a rule and what stands, cannot both hold, and
/// where what is given contradicts itself. What is given outlives the problem.
[[nodiscard]] placement_problem make_placement_problem(
    const job_graph& graph, std::span<const node_resources> nodes,
    std::span<const instance_id> wanted, std::span<const instance_place> taken,
    const std::vector<const graph_place*>& rules);

/// Returns the party that stands on each node: `none`, or `blocked` if there are two.
[[nodiscard]] std::vector<std::uint32_t> standing_parties(
    const placement_problem& problem, const separation& rule);

/// Returns "apart [prefill, decode]", with " at gpu" where it is of that level.
[[nodiscard]] std::string rule_text(const graph_place& rule);

}  // namespace manyworlds::inline v0::detail
