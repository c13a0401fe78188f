// Device count: how many GPUs there are.
#pragma once

#include "manyworlds/nccl/device_error.hpp"

namespace manyworlds::inline v0 {

/// Returns the number of CUDA devices that this process sees, at least one; they are
/// numbered from 0. Makes no context on any of them. Thread: any.
///
/// Errors: device_error where there is none, saying why: no GPU, no driver or too old a
/// one, no CUDA in this build or on this machine.
[[nodiscard]] int device_count();

}  // namespace manyworlds::inline v0
