// Algorithm table: which algorithm a collective is done by.
#pragma once

#include "manyworlds/host/algorithms.hpp"

namespace manyworlds::inline v0::host {

struct collective_extent {
  operation_kind kind = operation_kind::none;
  rank_t members = 0;
  std::size_t bytes = 0;
  bool one_host = false;
};

/// By the first of `own`, then of the default rules that fits and that can be done.
[[nodiscard]] algorithm choose_algorithm(std::span<const algorithm_rule> own,
                                         const collective_extent& extent) noexcept;

}  // namespace manyworlds::inline v0::host
