// Devices, and which of them a thread means.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>

#include "entry.hpp"
#include "settings.hpp"
#include "submit.hpp"

using namespace emulated;

namespace {

// body(), of a device that is there.
template <class Body>
cudaError_t enter_device(int ordinal, Body body) {
  const auto where = [ordinal] {
    return machine::here().has(ordinal) ? ordinal : current_device();
  };
  return enter_at(where, contextless, [&]() -> cudaError_t {
    return machine::here().has(ordinal) ? body() : cudaErrorInvalidDevice;
  });
}

// As an H100 answers, where a program may ask.
bool attribute(cudaDeviceAttr asked, int device, int& value) {
  switch (asked) {
    case cudaDevAttrMultiProcessorCount:
      value = chosen().multiprocessors;
      return true;
    case cudaDevAttrComputeCapabilityMajor:
      value = chosen().capability_of(device) / 10;
      return true;
    case cudaDevAttrComputeCapabilityMinor:
      value = chosen().capability_of(device) % 10;
      return true;
    case cudaDevAttrWarpSize:
      value = 32;
      return true;
    case cudaDevAttrMaxThreadsPerBlock:
      value = 1024;
      return true;
    case cudaDevAttrAsyncEngineCount:
      value = 3;
      return true;
    case cudaDevAttrPciBusId:
      value = device + 1;
      return true;
    case cudaDevAttrPciDeviceId:
    case cudaDevAttrPciDomainId:
    case cudaDevAttrIntegrated:
    case cudaDevAttrKernelExecTimeout:
    case cudaDevAttrComputeMode:
    case cudaDevAttrPageableMemoryAccess:
    case cudaDevAttrPageableMemoryAccessUsesHostPageTables:
    case cudaDevAttrHostNativeAtomicSupported:
    case cudaDevAttrGPUDirectRDMASupported:
      value = 0;
      return true;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrHostRegisterSupported:
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
    case cudaDevAttrEccEnabled:
      value = 1;
      return true;
    default:
      return false;
  }
}

}  // namespace

cudaError_t cudaDriverGetVersion(int* version) {
  if (version == nullptr) return noted(cudaErrorInvalidValue);
  *version = chosen().driver;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  if (version == nullptr) return noted(cudaErrorInvalidValue);
  *version = runtime_version;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  return enter(lockless, [&] {
    if (count == nullptr) return cudaErrorInvalidValue;
    *count = chosen().devices;
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int ordinal) {
  return enter_device(ordinal, [&] {
    set_device(ordinal);
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* ordinal) {
  return enter(lockless, [&] {
    if (ordinal == nullptr) return cudaErrorInvalidValue;
    *ordinal = current_device();
    return cudaSuccess;
  });
}

cudaError_t cudaInitDevice(int ordinal, unsigned int, unsigned int) {
  return enter_device(ordinal, [&] {
    machine::here().on(ordinal).has_context = true;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr asked, int ordinal) {
  return enter_device(ordinal, [&] {
    if (value == nullptr) return cudaErrorInvalidValue;
    return attribute(asked, ordinal, *value) ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int ordinal) {
  return enter_device(ordinal, [&] {
    if (text == nullptr || length < 13) return cudaErrorInvalidValue;
    std::snprintf(text, static_cast<std::size_t>(length), "0000:%02X:00.0",
                  static_cast<unsigned>(ordinal + 1) & 0xFFu);
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int ordinal) {
  return enter_device(ordinal, [&] {
    if (properties == nullptr) return cudaErrorInvalidValue;
    *properties = {};
    std::snprintf(properties->name, sizeof properties->name, "Emulated GPU");
    std::memcpy(properties->uuid.bytes, "manyworlds-emu", 14);
    properties->uuid.bytes[15] = static_cast<char>(ordinal);
    properties->totalGlobalMem = device_memory;
    properties->multiProcessorCount = chosen().multiprocessors;
    properties->major = chosen().capability_of(ordinal) / 10;
    properties->minor = chosen().capability_of(ordinal) % 10;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = 1024;
    properties->pciBusID = ordinal + 1;
    properties->asyncEngineCount = 3;
    properties->ECCEnabled = 1;
    properties->unifiedAddressing = 1;
    properties->canMapHostMemory = 1;
    properties->concurrentKernels = 1;
    properties->streamPrioritiesSupported = 1;
    properties->cooperativeLaunch = 1;
    properties->memoryPoolsSupported = 1;
    properties->hostRegisterSupported = 1;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int ordinal, int peer) {
  return enter_device(ordinal, [&] {
    if (!machine::here().has(peer)) return cudaErrorInvalidDevice;
    *can = ordinal != peer && chosen().reaches_peers;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return enter(unsafe,
               [] { return wait_for_device(machine::here().on(current_device())); });
}

cudaError_t cudaDeviceReset() {
  return enter(unsafe, [] {
    machine& all = machine::here();
    const int ordinal = current_device();
    const auto is_ours = [&](const auto& each) { return each.device == ordinal; };
    all.on(ordinal).drop_all();
    const auto result = wait_for_device(all.on(ordinal));
    for (const stream_ptr& each : all.streams.remove_if(is_ours)) each->end();
    all.events.remove_if(is_ours);
    all.memory.free_all_of(ordinal);
    return result;
  });
}
