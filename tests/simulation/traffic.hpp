// Traffic: what the members of a world say to each other in a random scenario, every byte
// of it checked.
#pragma once

#include "simulation/world_cluster.hpp"
#include "simulation/world_plan.hpp"

namespace manyworlds_tests {

/// Talks until all have said their last, or until the world is over: then throws its
/// failure.
[[nodiscard]] mw::task<void> talk(cluster& all, member_process& self,
                                  const world_plan& plan, mw::world& w);

/// `keep` with that body.
[[nodiscard]] mw::task<void> keep_talking(cluster& all, member_process& self,
                                          const world_plan& plan, mw::rank_t rank);

}  // namespace manyworlds_tests
