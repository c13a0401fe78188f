// CUDA library: the functions of the CUDA runtime that the library calls.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

#include "shared_library.hpp"

#if CUDART_VERSION < 12000 || CUDART_VERSION >= 14000
#error "CUDA 12 or 13, or a build without it: -DMANYWORLDS_HAS_NCCL=0"
#endif

// clang-format off
// Every function that must be there.
#define MANYWORLDS_CUDA_FUNCTIONS(each)    \
  each(cudaDeviceGetAttribute)            \
  each(cudaDeviceGetPCIBusId)             \
  each(cudaDriverGetVersion)              \
  each(cudaEventCreateWithFlags)          \
  each(cudaEventDestroy)                  \
  each(cudaEventQuery)                    \
  each(cudaEventRecord)                   \
  each(cudaFreeAsync)                     \
  each(cudaFreeHost)                      \
  each(cudaGetDevice)                     \
  each(cudaGetDeviceCount)                \
  each(cudaGetErrorName)                  \
  each(cudaGetErrorString)                \
  each(cudaGetLastError)                  \
  each(cudaLaunchHostFunc)                \
  each(cudaMemGetInfo)                    \
  each(cudaMemPoolCreate)                 \
  each(cudaMemPoolDestroy)                \
  each(cudaMemPoolGetAttribute)           \
  each(cudaMemPoolSetAttribute)           \
  each(cudaMemPoolTrimTo)                 \
  each(cudaMemcpyAsync)                   \
  each(cudaPointerGetAttributes)          \
  each(cudaRuntimeGetVersion)             \
  each(cudaSetDevice)                     \
  each(cudaStreamCreateWithFlags)         \
  each(cudaStreamCreateWithPriority)      \
  each(cudaStreamDestroy)                 \
  each(cudaStreamIsCapturing)             \
  each(cudaStreamQuery)                   \
  each(cudaStreamWaitEvent)               \
  each(cudaThreadExchangeStreamCaptureMode)

// Those that <cuda_runtime.h>, which <nccl.h> includes, has templates of the same name for.
#define MANYWORLDS_CUDA_OVERLOADED_FUNCTIONS(each)                             \
  each(cudaHostAlloc, (void**, std::size_t, unsigned))                         \
  each(cudaHostGetDevicePointer, (void**, void*, unsigned))                    \
  each(cudaMallocAsync, (void**, std::size_t, cudaStream_t))                   \
  each(cudaMallocFromPoolAsync, (void**, std::size_t, cudaMemPool_t, cudaStream_t))
// clang-format on

namespace manyworlds::inline v0::nccl {

/// Writes a word when the stream gets there (cuStreamWriteValue32): the driver's, since
/// the runtime has none.
using write_word_function = int(CUstream_st* stream, unsigned long long address,
                                std::uint32_t value, unsigned flags);

/// The table of what was found. The soname of the headers' major version is looked for,
/// since its calls are what was compiled.
struct cuda_library {
#define MANYWORLDS_DECLARE(name) decltype(&::name) name = nullptr;
  MANYWORLDS_CUDA_FUNCTIONS(MANYWORLDS_DECLARE)
#undef MANYWORLDS_DECLARE
#define MANYWORLDS_DECLARE(name, parameters) cudaError_t(*name) parameters = nullptr;
  MANYWORLDS_CUDA_OVERLOADED_FUNCTIONS(MANYWORLDS_DECLARE)
#undef MANYWORLDS_DECLARE
  /// Null where the driver has none.
  write_word_function* write_word = nullptr;
  // Declared here, as the headers may be older than what is loaded.
  /// 12.8.
  cudaError_t (*cudaStreamGetDevice)(cudaStream_t, int* device) = nullptr;

  /// What is missing and what to do; empty if all is there. A driver is not asked for.
  std::string objection;

  /// The process's: found once, on the first call, which may take long.
  [[nodiscard]] static const cuda_library& get();

  /// "cudaErrorNoDevice (no CUDA-capable device is detected)". Forgets the thread's last
  /// error, so that the caller's own check does not find ours.
  [[nodiscard]] std::string describe(cudaError_t error) const;
};

/// Errors after which every call of the process on that device fails.
[[nodiscard]] bool is_sticky(cudaError_t error) noexcept;

/// While it lives, a capture elsewhere is not disturbed by what the calling thread calls,
/// nor does it refuse the thread's calls.
class capture_scope {
 public:
  capture_scope() noexcept;
  capture_scope(const capture_scope&) = delete;
  capture_scope& operator=(const capture_scope&) = delete;
  ~capture_scope();

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// While it lives, the calling thread's device is another; and a capture scope.
class device_scope {
 public:
  explicit device_scope(int device) noexcept;
  device_scope(const device_scope&) = delete;
  device_scope& operator=(const device_scope&) = delete;
  ~device_scope();

 private:
  capture_scope relaxed_;
  int before_ = -1;
};

}  // namespace manyworlds::inline v0::nccl
