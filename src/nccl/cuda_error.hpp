// CUDA error: the device errors of calls to CUDA, each with what to do.
#pragma once

#include <string>

#include "manyworlds/nccl/device_error.hpp"
#include "nccl/cuda_library.hpp"

namespace manyworlds::inline v0::detail::nccl {

/// Returns the functions. Errors: device_error if they are not available. `asked`
/// begins the text.
const cuda_library& cuda_for(const std::string& asked);

/// Does the same, and throws if there is no such device too.
const cuda_library& cuda_on(int device, const std::string& asked);

/// Throws device_error: "<asked>: <CUDA's error>: <what to do>".
[[noreturn]] void refuse(const std::string& asked, cudaError_t error);

}  // namespace manyworlds::inline v0::detail::nccl
