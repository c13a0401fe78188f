// Placement texts: why instances are where they are, or cannot be placed.
#pragma once

#include <optional>
#include <string>

#include "mpmd/placement_problem.hpp"
#include "mpmd/placement_search.hpp"

namespace manyworlds::inline v0::detail {

/// Returns what all nodes have too little of, as "short of 3 gpus: 8 needed, 5 there".
[[nodiscard]] std::optional<std::string> total_shortage(const placement_problem& problem);

/// Returns which rule needs more nodes than there are: `apart [a, b] needs 3 nodes (a 2,
/// b 1), 2 have room`.
[[nodiscard]] std::optional<std::string> node_shortage(const placement_problem& problem);

/// Returns what the bundle of a dead end needs, and what spoke against each node.
[[nodiscard]] std::string dead_end_text(const placement_problem& problem,
                                        const dead_end& where);

/// Returns why an instance is where it is. `bundle` is its own.
[[nodiscard]] std::string decision_text(const placement_problem& problem,
                                        const placement_bundle& bundle,
                                        std::uint32_t wanted_one,
                                        const placement_decision& decision);

}  // namespace manyworlds::inline v0::detail
