// Memory: of devices, pinned, registered.
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstring>

#include "entry.hpp"
#include "settings.hpp"
#include "submit.hpp"

using namespace emulated;

namespace {

// What CUDA 13 added is not there in a program that was built before.
constexpr std::size_t known_attributes = runtime_version < 13000
                                             ? offsetof(cudaPointerAttributes, reserved)
                                             : sizeof(cudaPointerAttributes);

// "Implicit Synchronization" of the CUDA programming guide: nothing runs on the device
// beside a page-locked host memory allocation, or a device memory allocation.
cudaError_t synchronise_implicitly() {
  if (!chosen().syncs_implicitly) return cudaSuccess;
  const driver_lock_kept while_waiting;
  return wait_for_device(machine::here().on(current_device()));
}

cudaError_t allocate(void** pointer, std::size_t size, memory_kind kind) {
  if (pointer == nullptr) return cudaErrorInvalidValue;
  *pointer = nullptr;
  if (size == 0) return cudaSuccess;
  if (const auto broken = synchronise_implicitly(); broken != cudaSuccess) return broken;
  *pointer = machine::here().memory.allocate(size, kind, current_device());
  return *pointer == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

int device_of(const void* pointer) {
  const auto block = machine::here().memory.find(pointer);
  return block ? block->device : current_device();
}

// Waits for all work of the device first, as the driver does.
cudaError_t free_now(void* pointer, memory_kind kind) {
  if (pointer == nullptr) return cudaSuccess;
  machine& all = machine::here();
  const auto block = all.memory.find(pointer);
  if (!block || block->kind != kind || block->base != pointer || block->being_freed)
    return cudaErrorInvalidValue;
  const driver_lock_kept while_waiting;
  const auto result = wait_for_device(all.on(block->device));
  // What runs on a broken device may go on writing: its memory is never given out again.
  if (result == cudaSuccess) all.memory.free(pointer);
  return result;
}

}  // namespace

cudaError_t cudaMalloc(void** pointer, size_t size) {
  return enter(unsafe, [&] { return allocate(pointer, size, memory_kind::device); });
}

cudaError_t cudaFree(void* pointer) {
  return enter_at([=] { return device_of(pointer); }, unsafe_freeing,
                  [&] { return free_now(pointer, memory_kind::device); });
}

cudaError_t cudaHostAlloc(void** pointer, size_t size, unsigned int flags) {
  return enter(unsafe, [&] {
    constexpr unsigned known =
        cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
    if ((flags & ~known) != 0) return cudaErrorInvalidValue;
    return allocate(pointer, size, memory_kind::pinned);
  });
}

cudaError_t cudaMallocHost(void** pointer, size_t size) {
  return cudaHostAlloc(pointer, size, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void* pointer) {
  return enter_at([=] { return device_of(pointer); }, unsafe_freeing,
                  [&] { return free_now(pointer, memory_kind::pinned); });
}

cudaError_t cudaHostRegister(void* pointer, size_t size, unsigned int) {
  return enter(unsafe, [&] {
    if (pointer == nullptr || size == 0) return cudaErrorInvalidValue;
    if (const auto broken = synchronise_implicitly(); broken != cudaSuccess)
      return broken;
    return machine::here().memory.register_host(pointer, size, current_device())
               ? cudaSuccess
               : cudaErrorHostMemoryAlreadyRegistered;
  });
}

cudaError_t cudaHostUnregister(void* pointer) {
  return enter(unsafe_freeing, [&] {
    return machine::here().memory.unregister_host(pointer)
               ? cudaSuccess
               : cudaErrorHostMemoryNotRegistered;
  });
}

cudaError_t cudaHostGetDevicePointer(void** device_pointer, void* pointer,
                                     unsigned int flags) {
  return enter(ordinary, [&] {
    const auto block = machine::here().memory.find(pointer);
    if (flags != 0 || !block || block->kind == memory_kind::device)
      return cudaErrorInvalidValue;
    *device_pointer = pointer;
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return enter(ordinary, [&] {
    *total = device_memory;
    *free = device_memory - machine::here().memory.used(current_device());
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes,
                                     const void* pointer) {
  return enter(ordinary, [&] {
    if (attributes == nullptr || pointer == nullptr) return cudaErrorInvalidValue;
    std::memset(attributes, 0, known_attributes);
    auto* const address = const_cast<void*>(pointer);
    const auto block = machine::here().memory.find(pointer);
    if (!block) {
      attributes->type = cudaMemoryTypeUnregistered;
      attributes->device = cudaInvalidDeviceId;
      attributes->hostPointer = address;
      return cudaSuccess;
    }
    const bool on_device = block->kind == memory_kind::device;
    attributes->type = on_device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    attributes->device = block->device;
    attributes->devicePointer = address;
    attributes->hostPointer = on_device ? nullptr : address;
    return cudaSuccess;
  });
}
