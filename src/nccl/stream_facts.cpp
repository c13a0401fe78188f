#include "nccl/stream_facts.hpp"

#include <stdexcept>

#include "nccl/cuda_error.hpp"

namespace manyworlds::inline v0::detail::nccl {

void check_stream(device_stream stream, const std::string& asked) {
  if (stream) return;
  throw std::invalid_argument(
      asked +
      " needs a stream: for the default one say cudaStreamLegacy or "
      "cudaStreamPerThread");
}

void check_not_captured(const cuda_library& cuda, device_stream stream,
                        const std::string& asked) {
  const capture_scope relaxed;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (const auto error = cuda.cudaStreamIsCapturing(stream.handle(), &status);
      error != cudaSuccess) {
    refuse(asked, error);
  }
  if (status == cudaStreamCaptureStatusNone) return;
  throw device_error(asked +
                         ": the stream is being captured, and what is enqueued there "
                         "runs only when the graph is launched",
                     cudaErrorStreamCaptureUnsupported);
}

bool is_of_threads_device(const cuda_library& cuda, device_stream stream) noexcept {
  CUstream_st* const handle = stream.handle();
  return handle == cudaStreamLegacy || handle == cudaStreamPerThread ||
         !cuda.tells_devices();
}

int device_of(const cuda_library& cuda, device_stream stream, const std::string& asked,
              int otherwise) {
  if (is_of_threads_device(cuda, stream)) return otherwise;
  int device = otherwise;
  const auto error = cuda.find_device(stream.handle(), device);
  if (error != cudaSuccess) refuse(asked, error);
  return device;
}

}  // namespace manyworlds::inline v0::detail::nccl
