// Device count: how many GPUs there are.
#pragma once

#include "manyworlds/nccl/device_error.hpp"

namespace manyworlds::inline v0 {

/// CUDA devices that this process sees, at least one; their numbers are 0 and up. Makes
/// no context on any of them. Throws `device_error` where there is none, saying why: no
/// GPU, no driver or too old a one, no CUDA in this build or on this machine. Any thread.
[[nodiscard]] int device_count();

}  // namespace manyworlds::inline v0
