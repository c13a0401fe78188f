#include "nccl/cuda_error.hpp"

#include <fmt/format.h>

namespace manyworlds::inline v0::detail::nccl {

namespace {

std::string advice(cudaError_t error) {
  if (is_sticky(error)) {
    return ": an earlier kernel or the device failed, and every call of this process on "
           "that device fails from now on: end the process";
  }
  switch (error) {
    case cudaErrorMemoryAllocation:
      return ": free memory, or trim() a pool that holds some";
    case cudaErrorInsufficientDriver:
      return fmt::format(": install an NVIDIA driver for CUDA {} or later",
                         CUDART_VERSION / 1000);
    case cudaErrorNoDevice:
      return ": is there a GPU, and does CUDA_VISIBLE_DEVICES name it?";
    case cudaErrorInvalidResourceHandle:
      return ": does the stream still exist, and is it a stream of that device?";
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureImplicit:
      return ": a graph is being captured from the stream, or from one that it waits for";
    default:
      return "";
  }
}

}  // namespace

const cuda_library& cuda_for(const std::string& asked) {
  const cuda_library& cuda = cuda_library::get();
  if (!cuda.error.empty()) throw device_error(asked + ": " + cuda.error);
  return cuda;
}

const cuda_library& cuda_on(int device, const std::string& asked) {
  const cuda_library& cuda = cuda_for(asked);
  int devices = 0;
  if (const auto error = cuda.cudaGetDeviceCount(&devices); error != cudaSuccess) {
    refuse(asked, error);
  }
  if (device < 0 || device >= devices) {
    throw device_error(fmt::format("{}: there is no such device; there are {}, from 0 on",
                                   asked, devices),
                       cudaErrorInvalidDevice);
  }
  return cuda;
}

void refuse(const std::string& asked, cudaError_t error) {
  const std::string said = cuda_library::get().describe(error);
  throw device_error(asked + ": " + said + advice(error), error, is_sticky(error));
}

}  // namespace manyworlds::inline v0::detail::nccl
