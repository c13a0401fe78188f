#include "allocation.hpp"

#include "complaint.hpp"
#include "plan.hpp"
#include "settings.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>

namespace nccl_emulation {

namespace {

constexpr std::size_t some_bytes = 512;

ncclResult_t checked(cudaError_t error) {
  if (error == cudaSuccess) return ncclSuccess;
  return complain(ncclUnhandledCudaError,
                  std::string{"Cuda failure "} + cudaGetErrorString(error));
}

}  // namespace

// All of them, by asking for their attributes (src/enqueue.cc, ncclInitKernelsForDevice).
ncclResult_t load_kernels(const communicator& c) { return checked(load_plan(c.device)); }

// src/init.cc, devCommSetup: device memory, and page-locked memory for the work queue.
ncclResult_t allocate(communicator& c) {
  if (!chosen().syncs_implicitly) return ncclSuccess;
  void* made = nullptr;
  if (const auto failure = checked(cudaMalloc(&made, some_bytes))) return failure;
  c.device_memory.push_back(made);
  if (const auto failure = checked(cudaHostAlloc(&made, some_bytes, cudaHostAllocMapped)))
    return failure;
  c.pinned_memory.push_back(made);
  return ncclSuccess;
}

void free_allocated(communicator& c) {
  for (void* each : c.device_memory) cudaFree(each);
  for (void* each : c.pinned_memory) cudaFreeHost(each);
  c.device_memory.clear();
  c.pinned_memory.clear();
}

}  // namespace nccl_emulation
