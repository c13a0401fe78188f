// NVML: the GPUs of this machine as NVIDIA's driver lists them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace manyworlds::inline v0::detail {

/// A GPU as NVML describes it.
struct nvml_gpu {
  std::string uuid;          ///< "GPU-" and 36 characters; empty: it does not answer
  std::uint64_t memory = 0;  ///< bytes
  std::string address;       ///< on the bus, as the kernel's folders are named
};

/// Returns the GPUs in the order of NVML, which is that of their addresses. One that does
/// not answer keeps its position, since indices count it. Returns none where the library
/// cannot be opened or used: machines without a GPU have no NVML.
///
/// `library` is what dlopen takes. It is opened for the call alone, and no header of CUDA
/// is needed.
[[nodiscard]] std::vector<nvml_gpu> nvml_gpus(
    const std::string& library = "libnvidia-ml.so.1");

/// What is called of NVML, as its header has it.
namespace nvml {

using device = struct nvmlDevice_st*;
/// NVML_SUCCESS is 0.
using result = int;

struct memory_info {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

/// nvmlPciInfo_t as the calls of version 3 fill it.
struct pci_info {
  char legacy_bus_id[16];
  unsigned int domain;
  unsigned int bus;
  unsigned int device;
  unsigned int device_id;
  unsigned int subsystem_id;
  char bus_id[32];
};
static_assert(sizeof(pci_info) == 68);

/// NVML_DEVICE_UUID_V2_BUFFER_SIZE.
inline constexpr unsigned int uuid_size = 96;

using init_call = result();
using shutdown_call = result();
using count_call = result(unsigned int*);
using handle_call = result(unsigned int, device*);
using uuid_call = result(device, char*, unsigned int);
using memory_call = result(device, memory_info*);
using pci_call = result(device, pci_info*);

}  // namespace nvml

}  // namespace manyworlds::inline v0::detail
