// Collective part: what a collective on host memory says beyond `operation`.
#pragma once

#include <cstddef>
#include <span>

#include "manyworlds/address.hpp"
#include "manyworlds/memory/reduction.hpp"

namespace manyworlds::inline v0::detail {

/// Lives in the awaiter of the operation. The operation's `source` and `target` are the
/// buffers: one view each, or none.
struct collective_part {
  reduction by = sum;
  rank_t root = no_rank;
  /// True if the parts of the ranks differ in size. Then the counts give the elements
  /// of each rank's part of source and target. Lifetime: they refer to the caller's
  /// memory.
  bool is_variable = false;
  std::span<const std::size_t> source_counts;
  std::span<const std::size_t> target_counts;
};

}  // namespace manyworlds::inline v0::detail
