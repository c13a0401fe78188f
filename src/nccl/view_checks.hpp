// View checks: what CUDA says of the memory and streams that an operation is given.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>

#include "manyworlds/memory/device_view.hpp"

namespace manyworlds::inline v0::detail::nccl {

/// Returns only the first views of a long list: an answer takes 0.1 us or more.
[[nodiscard]] inline std::span<const const_device_view> checked_views(
    std::span<const const_device_view> views) noexcept {
  constexpr std::size_t most = 4;
  return views.first(std::min(views.size(), most));
}

/// Returns what is wrong with those of the views that are checked, empty if nothing is.
/// Asks the driver, and may wait for its locks.
[[nodiscard]] std::string validate_views(std::span<const const_device_view> views,
                                         int device);
/// Returns what is wrong with a stream that an operation is to be ordered against.
[[nodiscard]] std::string validate_stream(device_stream stream);

}  // namespace manyworlds::inline v0::detail::nccl
