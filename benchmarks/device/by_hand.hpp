// By hand: CUDA and NCCL called as a program without this library would, and what they
// say of themselves.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>

#include "../report.hpp"
#include "../timing.hpp"

namespace mwbench {

/// Found at run time, like the library's own, so that the same libraries are measured.
struct by_hand {
  decltype(&::cudaDriverGetVersion) driver_version = nullptr;
  decltype(&::cudaEventCreateWithFlags) create_event = nullptr;
  decltype(&::cudaEventDestroy) destroy_event = nullptr;
  decltype(&::cudaEventQuery) query_event = nullptr;
  decltype(&::cudaEventRecord) record_event = nullptr;
  decltype(&::cudaFree) free = nullptr;
  decltype(&::cudaGetDeviceCount) device_count = nullptr;
  decltype(&::cudaGetDeviceProperties) device_properties = nullptr;
  decltype(&::cudaGetErrorString) error_text = nullptr;
  decltype(&::cudaGetLastError) last_error = nullptr;
  cudaError_t (*allocate)(void**, std::size_t) = nullptr;
  decltype(&::cudaRuntimeGetVersion) runtime_version = nullptr;
  decltype(&::cudaSetDevice) set_device = nullptr;
  decltype(&::cudaStreamSynchronize) synchronize = nullptr;
  decltype(&::ncclAllReduce) all_reduce = nullptr;
  decltype(&::ncclGetErrorString) nccl_error_text = nullptr;
  decltype(&::ncclGetVersion) nccl_version = nullptr;
  /// The emulation's own name is there.
  bool is_emulated = false;

  /// Throws std::runtime_error saying which library or function is not there.
  [[nodiscard]] static by_hand find();

  void check(cudaError_t) const;
  void check(ncclResult_t) const;
};

/// For the machine's row: GPU, driver and versions; or that figures say nothing.
[[nodiscard]] fields facts_of(const by_hand& cuda, int device);

/// Sums of `from` into `into` that are waited for by the thread that starts them.
class summed_by_hand {
 public:
  summed_by_hand(const by_hand& cuda, const float* from, float* into, std::size_t count);
  summed_by_hand(const summed_by_hand&) = delete;
  summed_by_hand& operator=(const summed_by_hand&) = delete;
  ~summed_by_hand();

  /// Microseconds of each, waited for by asking an event without pause.
  void spin(ncclComm_t on, cudaStream_t stream, int times, samples& took) const;
  /// The same, by cudaStreamSynchronize.
  void synchronize(ncclComm_t on, cudaStream_t stream, int times, samples& took) const;

 private:
  void start(ncclComm_t on, cudaStream_t stream) const;

  const by_hand& cuda_;
  const float* from_;
  float* into_;
  std::size_t count_;
  cudaEvent_t event_ = nullptr;
};

}  // namespace mwbench
