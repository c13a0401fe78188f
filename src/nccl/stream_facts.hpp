// Stream facts: what must be known of a stream before something is enqueued there.
#pragma once

#include <string>

#include "manyworlds/memory/device_view.hpp"
#include "nccl/cuda_library.hpp"

namespace manyworlds::inline v0::detail::nccl {

/// Throws std::invalid_argument for no stream.
void check_stream(device_stream stream, const std::string& asked);

/// Throws device_error if what is enqueued would become part of a graph, and would not
/// run now.
void check_not_captured(const cuda_library& cuda, device_stream stream,
                        const std::string& asked);

/// Returns whether `device_of` gives `otherwise`. Calls nothing of CUDA's.
[[nodiscard]] bool is_of_threads_device(const cuda_library& cuda,
                                        device_stream stream) noexcept;

/// Returns `otherwise`, the device of the thread that asks, where that is meant: of the
/// default stream, and of all others where neither the runtime nor the driver tells.
int device_of(const cuda_library& cuda, device_stream stream, const std::string& asked,
              int otherwise);

}  // namespace manyworlds::inline v0::detail::nccl
