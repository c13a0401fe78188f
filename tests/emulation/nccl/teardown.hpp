// How a communicator's resources go: finalising, revoking, freeing.
#pragma once

#include "communicator.hpp"
#include "settings.hpp"

namespace nccl_emulation {

/// Waits until it is quiet, then closes its connections, waiting for co-located peers as
/// `mode` says; an abort cuts that wait short where `cut` is given.
ncclResult_t close_down(communicator& c, ending_mode mode, interrupts cut);

/// What destroy and abort do in the end: with the last rank of this process, for all its
/// ranks.
ncclResult_t reclaim(const shared_communicator& c, ending_mode mode);

}  // namespace nccl_emulation
