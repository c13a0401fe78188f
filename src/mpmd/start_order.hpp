// Start order: the relation `after` of roles, by their positions in a graph.
#pragma once

#include <cstddef>
#include <vector>

#include "manyworlds/mpmd/job_graph.hpp"

namespace manyworlds::inline v0::detail {

/// For each role those that it is `after`, by index. Unknown names are left out.
[[nodiscard]] std::vector<std::vector<std::size_t>> after_lists(const job_graph& graph);

/// Returns a shortest cycle of a relation for each set of elements that reach each other:
/// each begins with its first element, and ends before that one comes again.
[[nodiscard]] std::vector<std::vector<std::size_t>> cycles_of(
    const std::vector<std::vector<std::size_t>>& lists);

}  // namespace manyworlds::inline v0::detail
