// Placement bundles: which instances belong on one node, and what they need there.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "mpmd/placement_problem.hpp"

namespace manyworlds::inline v0::detail {

struct bundled_instances {
  std::vector<placement_bundle> bundles;
  /// The sets of labels that bundles ask for, by their numbers.
  std::vector<std::vector<std::string>> label_sets;
};

/// Returns the bundles of `wanted`, in their order. Instances of one group (`per_group`)
/// are one bundle, and those that are `together`; one that stands fixes its bundle to its
/// node. Errors: placement_error where two that stand do so on different nodes.
///
/// `taken` are those of `problem.standing`, in that order. Needs, labels and forms are
/// set; what rules say of the bundles is not.
[[nodiscard]] bundled_instances make_bundles(
    const placement_problem& problem, std::span<const instance_place> taken,
    const std::vector<const graph_place*>& rules);

}  // namespace manyworlds::inline v0::detail
