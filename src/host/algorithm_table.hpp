// Algorithm table: which algorithm carries out a collective.
#pragma once

#include "manyworlds/algorithms.hpp"
#include "manyworlds/coro/task.hpp"

namespace manyworlds::inline v0::detail::host {

class schedule;

/// Carries out a schedule's shape, among at least two members.
using collective_function = task<void> (*)(schedule&);

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

/// Returns whether one of these rules fits.
[[nodiscard]] bool has_rule_for(std::span<const algorithm_rule> own,
                                const collective_extent& extent) noexcept;

/// Returns the function that carries out the kind by that algorithm; null if there is
/// none (`can_do`).
[[nodiscard]] collective_function function_for(operation_kind kind,
                                               algorithm use) noexcept;

}  // namespace manyworlds::inline v0::detail::host
