#include "nccl/view_checks.hpp"

#include <fmt/format.h>

#include "nccl/cuda_library.hpp"

namespace manyworlds::inline v0::detail::nccl {

namespace {

std::string validate(const const_device_view& view, int device) {
  const cuda_library& cuda = cuda_library::get();
  cudaPointerAttributes found{};
  const cudaError_t asked = cuda.cudaPointerGetAttributes(&found, view.data());
  if (asked != cudaSuccess) {
    return fmt::format("{}: {}", view.data(), cuda.describe(asked));
  }
  if (found.type != cudaMemoryTypeDevice && found.type != cudaMemoryTypeManaged) {
    return fmt::format(
        "{} lies in host memory: give it as a host buffer, without a stream",
        view.data());
  }
  if (found.device != device) {
    return fmt::format("{} lies on device {}, the world is on device {}", view.data(),
                       found.device, device);
  }
  return validate_stream(view.stream());
}

}  // namespace

std::string validate_stream(device_stream stream) {
  const cuda_library& cuda = cuda_library::get();
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  const cudaError_t state = cuda.cudaStreamIsCapturing(stream.handle(), &capture);
  if (state != cudaSuccess) return "its stream: " + cuda.describe(state);
  if (capture != cudaStreamCaptureStatusNone) {
    return "its stream is being captured: capture the calls of NCCL in native()";
  }
  return {};
}

std::string validate_views(std::span<const const_device_view> views, int device) {
  const device_scope here(device);
  const auto asked = checked_views(views);
  for (std::size_t i = 0; i < asked.size(); ++i) {
    if (asked[i].empty()) continue;
    std::string wrong = validate(asked[i], device);
    if (!wrong.empty()) return fmt::format("view {}: {}", i, wrong);
  }
  return {};
}

}  // namespace manyworlds::inline v0::detail::nccl
