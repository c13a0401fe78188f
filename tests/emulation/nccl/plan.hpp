// The operations one group gives to one communicator, as its stream runs them.
#pragma once

#include "task.hpp"

#include <vector>

namespace nccl_emulation {

/// Puts `tasks` on their streams as one kernel: it starts when all streams have come to
/// it, and all go on when it ends.
ncclResult_t launch(const shared_communicator& c, std::vector<task> tasks);

/// Before the first launch on the device, when a communicator is made.
cudaError_t load_plan(int device);

/// A communicator of one rank has no kernel: a copy on the caller's stream, at once.
ncclResult_t launch_alone(const shared_communicator& c, const task& t);

/// Waits until no operation is on a stream and no graph holds one.
void wait_quiet(communicator& c);

}  // namespace nccl_emulation
