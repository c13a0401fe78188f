// View checks: what CUDA says of the memory and streams that an operation is given.
#pragma once

#include <span>
#include <string>

#include "manyworlds/memory/device_view.hpp"

namespace manyworlds::inline v0::nccl {

/// What is wrong with the views, empty if nothing. Asks the driver, of a long list for
/// the first views only: an answer takes 0.1 us or more. On any thread.
[[nodiscard]] std::string objection_to_views(std::span<const const_device_view> views,
                                             int device);

}  // namespace manyworlds::inline v0::nccl
