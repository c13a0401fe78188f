// GPUs: memory, streams, waits and copies of CUDA, for worlds of the backend `nccl`. No
// header of CUDA is included.
#pragma once

#include "manyworlds/manyworlds.hpp"
#include "manyworlds/memory/device_view.hpp"
#include "manyworlds/memory/dlpack_device.hpp"
#include "manyworlds/memory/gather_list.hpp"
#include "manyworlds/nccl/copy.hpp"
#include "manyworlds/nccl/device_buffer.hpp"
#include "manyworlds/nccl/device_count.hpp"
#include "manyworlds/nccl/device_error.hpp"
#include "manyworlds/nccl/device_options.hpp"
#include "manyworlds/nccl/device_pool.hpp"
#include "manyworlds/nccl/on.hpp"
#include "manyworlds/nccl/owned_stream.hpp"
#include "manyworlds/nccl/pinned_pool.hpp"
#include "manyworlds/nccl/ticket.hpp"
#include "manyworlds/world/graph_hold.hpp"
