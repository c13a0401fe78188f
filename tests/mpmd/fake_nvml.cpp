// A machine of four GPUs as libnvidia-ml.so.1 would list it: the third does not answer.
#include <cstring>

#include "mpmd/nvml.hpp"

namespace {

using namespace manyworlds::detail;

struct fake_gpu {
  const char* uuid;
  unsigned long long memory;
  unsigned int bus;
};

constexpr nvml::result not_supported = 3;
constexpr nvml::result lost = 15;
constexpr unsigned int gpus = 4;

fake_gpu machine[gpus] = {
    {"GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", 80ULL << 30, 0x0f},
    {"GPU-8932aaaa-0000-4106-c12f-20bd9faed9f6", 80ULL << 30, 0x2a},
    {nullptr, 0, 0x4b},
    {"GPU-5ab0cccc-0000-4106-c12f-20bd9faed9f6", 40ULL << 30, 0xc1},
};

bool is_started = false;

fake_gpu& of(nvml::device device) { return *reinterpret_cast<fake_gpu*>(device); }

}  // namespace

extern "C" {

nvml::result nvmlInit_v2() {
  is_started = true;
  return 0;
}

nvml::result nvmlShutdown() {
  is_started = false;
  return 0;
}

nvml::result nvmlDeviceGetCount_v2(unsigned int* count) {
  if (!is_started) return 1;
  *count = gpus;
  return 0;
}

nvml::result nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvml::device* device) {
  if (index >= gpus) return 2;
  if (machine[index].uuid == nullptr) return lost;
  *device = reinterpret_cast<nvml::device>(&machine[index]);
  return 0;
}

nvml::result nvmlDeviceGetUUID(nvml::device device, char* uuid, unsigned int size) {
  if (std::strlen(of(device).uuid) >= size) return 7;
  std::strcpy(uuid, of(device).uuid);
  return 0;
}

nvml::result nvmlDeviceGetMemoryInfo(nvml::device device, nvml::memory_info* memory) {
  memory->total = of(device).memory;
  return 0;
}

nvml::result nvmlDeviceGetPciInfo_v3(nvml::device device, nvml::pci_info* pci) {
  // The last one has no place on the bus that could be told.
  if (of(device).bus == 0xc1) return not_supported;
  pci->domain = 0;
  pci->bus = of(device).bus;
  pci->device = 0;
  return 0;
}

}  // extern "C"
