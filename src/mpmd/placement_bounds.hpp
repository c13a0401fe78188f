// Placement bounds: what no placement can be better than.
#pragma once

#include <cstdint>
#include <vector>

#include "mpmd/placement_problem.hpp"

namespace manyworlds::inline v0::detail {

/// What has to be placed, as far as bounds look at it.
struct placement_load {
  placement_amount total;
  placement_amount least;  ///< no bundle needs less, by resource
  std::uint64_t bundles = 0;

  void add(const placement_bundle& bundle) noexcept;
};

/// Returns a number of nodes that the load needs at least, of nodes with that much free;
/// one more than there are if it does not fit on all of them.
[[nodiscard]] std::uint32_t fewest_nodes(const placement_load& load,
                                         const std::vector<placement_amount>& free);

/// Says whether there are more bundles, or more of one form, than all nodes have room
/// for, as far as each node is looked at alone. No search is needed to refuse these.
[[nodiscard]] bool exceeds_all_nodes(const placement_problem& problem);

/// Returns the least sum of squares of the instances on each node. `held` are there
/// already, and `room` says how many more each can take.
[[nodiscard]] std::uint64_t least_squares(std::vector<std::uint64_t> held,
                                          std::vector<std::uint64_t> room,
                                          std::uint64_t instances);

}  // namespace manyworlds::inline v0::detail
