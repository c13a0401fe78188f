// CUDA library: the functions of the CUDA runtime that the library calls.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

#include "nccl/shared_library.hpp"

#if CUDART_VERSION < 12000 || CUDART_VERSION >= 14000
#error "CUDA 12 or 13, or a build without it: -DMANYWORLDS_HAS_NCCL=0"
#endif

// clang-format off
// Every function that must be there, with its parameters as they are from CUDA 12 on. They
// are written out since a name may stand for several functions: <cuda_runtime.h>, which
// <nccl.h> includes, has templates of some names, and the headers of 13.2 and later have
// more (of cudaMemcpyAsync, for one).
#define MANYWORLDS_CUDA_FUNCTIONS(each)                                                 \
  each(cudaDeviceCanAccessPeer, (int*, int, int))                                       \
  each(cudaDeviceGetAttribute, (int*, cudaDeviceAttr, int))                             \
  each(cudaDeviceGetPCIBusId, (char*, int, int))                                        \
  each(cudaDriverGetVersion, (int*))                                                    \
  each(cudaEventCreateWithFlags, (cudaEvent_t*, unsigned))                              \
  each(cudaEventDestroy, (cudaEvent_t))                                                 \
  each(cudaEventQuery, (cudaEvent_t))                                                   \
  each(cudaEventRecord, (cudaEvent_t, cudaStream_t))                                    \
  each(cudaFreeAsync, (void*, cudaStream_t))                                            \
  each(cudaFreeHost, (void*))                                                           \
  each(cudaGetDevice, (int*))                                                           \
  each(cudaGetDeviceCount, (int*))                                                      \
  each(cudaGetLastError, ())                                                            \
  each(cudaHostAlloc, (void**, std::size_t, unsigned))                                  \
  each(cudaHostGetDevicePointer, (void**, void*, unsigned))                             \
  each(cudaLaunchHostFunc, (cudaStream_t, cudaHostFn_t, void*))                         \
  each(cudaMallocAsync, (void**, std::size_t, cudaStream_t))                            \
  each(cudaMallocFromPoolAsync, (void**, std::size_t, cudaMemPool_t, cudaStream_t))     \
  each(cudaMemGetInfo, (std::size_t*, std::size_t*))                                    \
  each(cudaMemPoolCreate, (cudaMemPool_t*, const cudaMemPoolProps*))                    \
  each(cudaMemPoolDestroy, (cudaMemPool_t))                                             \
  each(cudaMemPoolGetAttribute, (cudaMemPool_t, cudaMemPoolAttr, void*))                \
  each(cudaMemPoolSetAccess, (cudaMemPool_t, const cudaMemAccessDesc*, std::size_t))    \
  each(cudaMemPoolSetAttribute, (cudaMemPool_t, cudaMemPoolAttr, void*))                \
  each(cudaMemPoolTrimTo, (cudaMemPool_t, std::size_t))                                 \
  each(cudaMemcpyAsync, (void*, const void*, std::size_t, cudaMemcpyKind, cudaStream_t)) \
  each(cudaPointerGetAttributes, (cudaPointerAttributes*, const void*))                 \
  each(cudaRuntimeGetVersion, (int*))                                                   \
  each(cudaSetDevice, (int))                                                            \
  each(cudaStreamCreateWithFlags, (cudaStream_t*, unsigned))                            \
  each(cudaStreamCreateWithPriority, (cudaStream_t*, unsigned, int))                    \
  each(cudaStreamDestroy, (cudaStream_t))                                               \
  each(cudaStreamIsCapturing, (cudaStream_t, cudaStreamCaptureStatus*))                 \
  each(cudaStreamQuery, (cudaStream_t))                                                 \
  each(cudaStreamWaitEvent, (cudaStream_t, cudaEvent_t, unsigned))                      \
  each(cudaThreadExchangeStreamCaptureMode, (cudaStreamCaptureMode*))
// clang-format on

struct CUctx_st;

namespace manyworlds::inline v0::detail::nccl {

// A table that differs from the headers does not compile: the address of what may be one
// of several functions is converted to the type that is called.
#define MANYWORLDS_COMPARE(name, parameters) \
  static_assert(sizeof(static_cast<cudaError_t(*) parameters>(&::name)) > 0);
MANYWORLDS_CUDA_FUNCTIONS(MANYWORLDS_COMPARE)
#undef MANYWORLDS_COMPARE
static_assert(sizeof(static_cast<const char* (*)(cudaError_t)>(&::cudaGetErrorName)) > 0);
static_assert(sizeof(static_cast<const char* (*)(cudaError_t)>(&::cudaGetErrorString)) >
              0);

/// Writes a word when the stream gets there (cuStreamWriteValue32): the driver's, since
/// the runtime has none.
using write_word_function = int(CUstream_st* stream, unsigned long long address,
                                std::uint32_t value, unsigned flags);

/// Holds the functions that were found. The soname of the headers' major version is
/// looked for, since its calls are what was compiled.
struct cuda_library {
#define MANYWORLDS_DECLARE(name, parameters) cudaError_t(*name) parameters = nullptr;
  MANYWORLDS_CUDA_FUNCTIONS(MANYWORLDS_DECLARE)
#undef MANYWORLDS_DECLARE
  const char* (*cudaGetErrorName)(cudaError_t) = nullptr;
  const char* (*cudaGetErrorString)(cudaError_t) = nullptr;
  /// Null where the driver has none.
  write_word_function* write_word = nullptr;
  /// The driver's contexts of the calling thread, all three or none. The runtime cannot
  /// take one away again: cudaSetDevice back to a device makes its context.
  int (*retain_context)(CUctx_st**, int device) = nullptr;
  int (*push_context)(CUctx_st*) = nullptr;
  int (*pop_context)(CUctx_st**) = nullptr;
  /// The driver's context of a stream, and the device of the calling thread's context.
  int (*stream_context)(CUstream_st*, CUctx_st**) = nullptr;
  int (*context_device)(int* device) = nullptr;
  // Declared here, as the headers may be older than what is loaded.
  /// Since 12.8.
  cudaError_t (*cudaStreamGetDevice)(cudaStream_t, int* device) = nullptr;

  /// The version as cudaRuntimeGetVersion gives it: 13000 is 13.0.
  int runtime = 0;
  /// What is missing and what to do; empty if all is there. A driver is not asked for.
  std::string error;

  /// Returns the process's table. The first call looks for the functions, which may
  /// take long.
  [[nodiscard]] static const cuda_library& get();

  /// Returns a text such as "cudaErrorNoDevice (no CUDA-capable device is detected)".
  /// Forgets the thread's last error, so that the caller's own check does not find
  /// ours.
  [[nodiscard]] std::string describe(cudaError_t error) const;

  /// Returns whether the runtime or the driver tells which device a stream is of.
  [[nodiscard]] bool tells_devices() const noexcept;
  /// Finds the device of a stream that is not a default one; asks the driver where the
  /// runtime, before 12.8, does not tell. `device` stays as it is if neither can tell.
  [[nodiscard]] cudaError_t find_device(cudaStream_t stream, int& device) const noexcept;

  /// Makes the device's context the calling thread's until `pop_context`. Returns false
  /// if the driver does not.
  [[nodiscard]] bool enter_device(int device) const noexcept;
};

/// Returns whether every call of the process on that device fails after this error.
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

/// While it lives, the calling thread's device is another, which has a context, as the
/// driver's own functions need. It is a capture scope as well. Afterwards the thread
/// has what it had before. A thread that had no context has none again. None is made on
/// GPU 0, where it would occupy several hundred MB of every process.
class device_scope {
 public:
  explicit device_scope(int device) noexcept;
  device_scope(const device_scope&) = delete;
  device_scope& operator=(const device_scope&) = delete;
  ~device_scope();

 private:
  capture_scope relaxed_;
  bool entered_ = false;
};

}  // namespace manyworlds::inline v0::detail::nccl
