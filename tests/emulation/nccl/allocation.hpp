// What a communicator keeps on its device, where allocating it waits for the device.
#pragma once

#include "communicator.hpp"

namespace nccl_emulation {

/// Allocates and loads as NCCL does before it may launch. It waits for all that runs on
/// the device where CUDA was asked to synchronise implicitly or to load lazily; elsewhere
/// there is nothing to keep.
ncclResult_t load_kernels(const communicator& c);
ncclResult_t allocate(communicator& c);
void free_allocated(communicator& c);

}  // namespace nccl_emulation
