// Collective part: what a collective on host memory says beyond `operation`.
#pragma once

#include <cstddef>
#include <span>

#include "manyworlds/address.hpp"
#include "manyworlds/memory/reduction.hpp"

namespace manyworlds::inline v0 {

/// In the operation's awaiter, whose `source` and `target` are its buffers: one view
/// each, or none.
struct collective_part {
  reduction by = sum;
  rank_t root = no_rank;
  /// Of the forms whose parts differ in size: the elements of each rank's part of source
  /// and target. They refer to the caller's memory.
  bool is_variable = false;
  std::span<const std::size_t> source_counts;
  std::span<const std::size_t> target_counts;
};

}  // namespace manyworlds::inline v0
