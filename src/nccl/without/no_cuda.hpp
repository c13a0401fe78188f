// No CUDA: what every public function says in a build without it.
#pragma once

#include <string>

#include "manyworlds/nccl/device_error.hpp"

namespace manyworlds::inline v0::detail::nccl {

/// Why, to follow what was asked.
inline constexpr const char* no_cuda =
    "this build has no CUDA: build Manyworlds where the headers of CUDA and NCCL are "
    "installed (-Dnccl=enabled says what is missing)";

[[noreturn]] inline void refuse(const char* asked) {
  throw device_error(std::string(asked) + ": " + no_cuda);
}

}  // namespace manyworlds::inline v0::detail::nccl
