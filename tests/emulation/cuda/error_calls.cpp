// Errors: the thread's last one, and their names.
#include <cuda_runtime_api.h>

#include "entry.hpp"

using namespace emulated;

namespace {

struct description {
  cudaError_t code;
  const char* name;
  const char* text;
};

#define NAMED(code, text) \
  { code, #code, text }
constexpr description descriptions[] = {
    NAMED(cudaSuccess, "no error"),
    NAMED(cudaErrorInvalidValue, "invalid argument"),
    NAMED(cudaErrorMemoryAllocation, "out of memory"),
    NAMED(cudaErrorInitializationError, "initialization error"),
    NAMED(cudaErrorCudartUnloading, "driver shutting down"),
    NAMED(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    NAMED(cudaErrorInsufficientDriver,
          "CUDA driver version is insufficient for CUDA runtime version"),
    NAMED(cudaErrorDevicesUnavailable,
          "CUDA-capable device(s) is/are busy or unavailable"),
    NAMED(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    NAMED(cudaErrorInvalidDevice, "invalid device ordinal"),
    NAMED(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"),
    NAMED(cudaErrorContained,
          "Invalid access of peer GPU memory over nvlink or a hardware error"),
    NAMED(cudaErrorOperatingSystem,
          "OS call failed or operation not supported on this OS"),
    NAMED(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    NAMED(cudaErrorIllegalState,
          "the operation cannot be performed in the present state"),
    NAMED(cudaErrorSymbolNotFound, "named symbol not found"),
    NAMED(cudaErrorNotReady, "device not ready"),
    NAMED(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    NAMED(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    NAMED(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
    NAMED(cudaErrorContextIsDestroyed, "context is destroyed"),
    NAMED(cudaErrorHostMemoryAlreadyRegistered,
          "part or all of the requested memory range is already mapped"),
    NAMED(cudaErrorHostMemoryNotRegistered,
          "pointer does not correspond to a registered memory region"),
    NAMED(cudaErrorLaunchFailure, "unspecified launch failure"),
    NAMED(cudaErrorNotPermitted, "operation not permitted"),
    NAMED(cudaErrorNotSupported, "operation not supported"),
    NAMED(cudaErrorStreamCaptureUnsupported,
          "operation not permitted when stream is capturing"),
    NAMED(cudaErrorStreamCaptureInvalidated,
          "operation failed due to a previous error during capture"),
    NAMED(cudaErrorStreamCaptureMerge,
          "operation would result in a merge of separate capture sequences"),
    NAMED(cudaErrorStreamCaptureUnmatched,
          "capture was not ended in the same stream as it began"),
    NAMED(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    NAMED(cudaErrorStreamCaptureIsolation,
          "dependency created on uncaptured work in another stream"),
    NAMED(cudaErrorStreamCaptureImplicit,
          "operation would make the legacy stream depend on a capturing blocking stream"),
    NAMED(cudaErrorCapturedEvent,
          "operation not permitted on an event last recorded in a capturing stream"),
    NAMED(cudaErrorStreamCaptureWrongThread,
          "attempt to terminate a thread-local capture sequence from another thread"),
    NAMED(cudaErrorUnknown, "unknown error"),
};
#undef NAMED

const description& describe(cudaError_t error) {
  static constexpr description unknown{cudaErrorUnknown, "unrecognized error code",
                                       "unrecognized error code"};
  for (const description& each : descriptions)
    if (each.code == error) return each;
  return unknown;
}

}  // namespace

const char* cudaGetErrorName(cudaError_t error) { return describe(error).name; }

const char* cudaGetErrorString(cudaError_t error) { return describe(error).text; }

cudaError_t cudaGetLastError() { return last_error(true); }

cudaError_t cudaPeekAtLastError() { return last_error(false); }
