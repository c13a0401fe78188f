// Connections that are made at their first use, within the call.
#pragma once

#include "task.hpp"

#include <span>

namespace nccl_emulation {

/// Whether there is something to make.
bool lacks_connections(const communicator& c, std::span<const task> tasks);

/// Makes what the tasks of a group need and no earlier group made. An abort or a
/// revocation gets it out, and it fails.
ncclResult_t connect(communicator& c, std::span<const task> tasks);

}  // namespace nccl_emulation
