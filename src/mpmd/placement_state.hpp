// Placement state: what is free, and who is where, while bundles are placed and taken
// back.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "mpmd/placement_classes.hpp"
#include "mpmd/placement_problem.hpp"

namespace manyworlds::inline v0::detail {

/// Why a bundle may not be placed on a node.
enum class obstacle : std::uint8_t {
  nothing,
  fixed,       ///< members stand on another node
  labels,      ///< the node lacks some
  separated,   ///< another party is there
  kept,        ///< another party would have too few nodes left
  resources,   ///< too little is free
  preference,  ///< a rule would hold less well than is known to be possible
  tried,       ///< it was tried, or one like it
};

struct node_verdict {
  obstacle what = obstacle::nothing;
  std::uint32_t separation = none;
  std::uint32_t party = none;  ///< the one that is there, or is kept for
  std::uint32_t preference = none;
};

/// What ranks nodes for a bundle, the first first. The least is best.
enum class rank_reason : std::uint8_t {
  quota,    ///< its party begins no node beyond its share
  pack,     ///< a packed role is there already
  cover,    ///< most of what is to be packed fits
  spread,   ///< the fewest of what is to be spread
  sharers,  ///< the fewest that share each CPU
  gpus,     ///< the fewest GPUs stay unused
  rest,     ///< the least stays free
};
inline constexpr std::size_t rank_reasons = 7;
using node_rank = std::array<std::uint64_t, rank_reasons>;

/// Up to that many nodes are looked at one by one: to sort them into classes takes
/// longer.
inline constexpr std::size_t few_nodes = 32;

class placement_state {
 public:
  /// Sorts nodes into classes if there are more than `few`.
  explicit placement_state(const placement_problem& problem, std::size_t few = few_nodes);

  /// Demands that a preference is measured at most so. Precondition: nothing is placed.
  void limit(std::uint32_t preference, std::uint64_t most) {
    preferred_[preference].most = most;
  }

  void put(const placement_bundle& bundle, std::uint32_t node);
  void take_back(const placement_bundle& bundle, std::uint32_t node);

  [[nodiscard]] node_verdict judge(const placement_bundle& bundle,
                                   std::uint32_t node) const;
  /// Returns the nodes by classes, or nothing if they are few. Bundles that are fixed are
  /// placed first; from then on verdicts and ranks of a bundle are the same for all nodes
  /// of a class.
  [[nodiscard]] const node_classes::class_map* classes() const noexcept {
    return has_classes_ ? &classes_.all() : nullptr;
  }
  /// Precondition: nothing speaks against the node.
  [[nodiscard]] node_rank rank(const placement_bundle& bundle, std::uint32_t node) const;
  /// Says whether the same can follow from placing a bundle on the one or on the other.
  [[nodiscard]] bool are_alike(std::uint32_t a, std::uint32_t b) const;
  /// Says whether `count` bundles like this one have room, as far as each node is looked
  /// at alone.
  [[nodiscard]] bool has_room(const placement_bundle& bundle, std::uint64_t count) const;

  [[nodiscard]] const placement_amount& free(std::uint32_t node) const {
    return nodes_[node].free;
  }
  [[nodiscard]] std::uint64_t measure(std::uint32_t preference) const;

 private:
  struct node_state {
    placement_amount free;
    std::uint64_t sharers = 0;
    std::uint64_t cpus = 1;  ///< in all, at least 1
  };
  struct claim {
    std::uint32_t party = none;
    std::uint32_t bundles = 0;
  };
  struct separation_state {
    std::vector<claim> claims;  ///< by node
    std::vector<std::uint32_t>
        available;  ///< by party: useful nodes that it has or may take
    std::vector<std::uint32_t> needed;  ///< by party: at most `available` at the start
    std::vector<std::uint32_t> begun;   ///< by party: nodes that it has
  };
  struct preference_state {
    std::vector<std::uint64_t> held;  ///< instances by node
    std::uint64_t used_nodes = 0;
    std::uint64_t squares = 0;
    std::uint64_t left = 0;  ///< instances that are not placed yet
    placement_amount need;   ///< of their bundles
    std::uint64_t most = UINT64_MAX;
  };

  void start_separation(const separation& rule);
  void start_preference(const preference& rule);
  /// Sorts the node again after a change of its facts.
  void sort(std::uint32_t node);
  [[nodiscard]] node_classes::node_facts facts_of(std::uint32_t node) const;
  /// Returns what the memory that is free adds to `rank_reason::rest`.
  [[nodiscard]] std::uint64_t rest_of_memory(std::uint32_t node) const;
  void hold(preference_state& state, std::uint32_t node, std::uint64_t instances);
  void drop(preference_state& state, std::uint32_t node, std::uint64_t instances);
  [[nodiscard]] node_verdict judge_parties(const placement_bundle& bundle,
                                           std::uint32_t node) const;
  /// Returns a preference that would exceed its limit, or `none`.
  [[nodiscard]] std::uint32_t exceeded_limit(const placement_bundle& bundle,
                                             std::uint32_t node) const;

  const placement_problem& problem_;
  std::vector<node_state> nodes_;
  std::vector<std::uint32_t> role_counts_;  ///< of placed instances, by node and role
  double cpu_weight_;
  double memory_weight_;
  bool has_classes_;
  node_classes classes_;
  std::vector<separation_state> separated_;
  std::vector<preference_state> preferred_;
};

}  // namespace manyworlds::inline v0::detail
