// Scale parts: what grows with worlds, and what with members.
#pragma once

#include "questions.hpp"

namespace mwbench {

/// One side of many worlds between two processes, a row for each number of them.
[[nodiscard]] mw::task<void> scale_worlds(member& m, const scale_options& o,
                                          mw::rank_t rank, report& out);

/// One member of one world of many processes: a row, by rank 0.
[[nodiscard]] mw::task<void> scale_members(member& m, const scale_options& o,
                                           mw::rank_t rank, mw::rank_t size, report& out);

}  // namespace mwbench
