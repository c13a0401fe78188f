// Simulated random: the randomness of a simulation.
#pragma once

#include "manyworlds/detail/seeded_random.hpp"

namespace manyworlds::inline v0 {

/// Draws the same sequence from the same seed with every compiler and library, so that a
/// seed means one run everywhere:
///
///     const std::uint64_t which = sim.random().below(3);
using simulated_random = detail::seeded_random;

}  // namespace manyworlds::inline v0
