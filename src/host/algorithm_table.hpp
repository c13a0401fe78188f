// Algorithm table: which algorithm carries out a collective.
#pragma once

#include "manyworlds/algorithms.hpp"

namespace manyworlds::inline v0::detail::host {

struct collective_extent {
  operation_kind kind = operation_kind::none;
  rank_t members = 0;
  std::size_t bytes = 0;
  bool one_host = false;
};

/// Returns the algorithm of the first possible rule that fits, of `own` and then of the
/// defaults.
[[nodiscard]] algorithm choose_algorithm(std::span<const algorithm_rule> own,
                                         const collective_extent& extent) noexcept;

}  // namespace manyworlds::inline v0::detail::host
