// The collectives, made of exchanges.
#pragma once

#include "task.hpp"

#include <span>
#include <vector>

namespace nccl_emulation {

/// Blocks until done; false when the flag was raised before.
bool run_collective(communicator& c, const task& t);

/// All at once; those completed are told in `complete`, one for each task.
bool run_point_to_point(communicator& c, std::span<const task> tasks,
                        std::vector<bool>& complete);

/// The one-rank form of a reduction: a copy, scaled where the operator says so.
void reduce_alone(const task& t);

}  // namespace nccl_emulation
