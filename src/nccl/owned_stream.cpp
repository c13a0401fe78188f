#include "manyworlds/nccl/owned_stream.hpp"

#include <fmt/format.h>

#include "nccl/cuda_error.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

owned_stream::owned_stream(int device, int priority) : device_(device) {
  const std::string asked = fmt::format("a stream on device {}", device);
  const nccl::cuda_library& cuda = nccl::cuda_on(device, asked);
  const nccl::device_scope here(device);
  if (const auto error =
          cuda.cudaStreamCreateWithPriority(&handle_, cudaStreamNonBlocking, priority);
      error != cudaSuccess) {
    nccl::refuse(asked, error);
  }
}

void owned_stream::destroy() noexcept {
  const nccl::device_scope here(device_);
  (void)nccl::cuda_library::get().cudaStreamDestroy(handle_);
}

}  // namespace manyworlds::inline v0
