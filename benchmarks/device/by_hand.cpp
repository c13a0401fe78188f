#include "by_hand.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace mwbench {

namespace {

void* open_library(const std::string& soname) {
  void* const library = ::dlopen(soname.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw std::runtime_error(::dlerror());
  return library;
}

template <class Function>
void find(void* library, const char* name, Function& into) {
  into = reinterpret_cast<Function>(::dlsym(library, name));
  if (!into) throw std::runtime_error(fmt::format("no {} in what is loaded", name));
}

// What a macro of the header makes of the name is what the library exports.
#define EXPORTED_TEXT(name) #name
#define EXPORTED(name) EXPORTED_TEXT(name)

std::string version_of(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}
std::string nccl_version_of(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

/// As nvidia-smi shows it; CUDA knows only which CUDA a driver is for.
std::string driver_of_machine() {
  void* const library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return "unknown";
  const auto begin = reinterpret_cast<int (*)()>(::dlsym(library, "nvmlInit_v2"));
  const auto version = reinterpret_cast<int (*)(char*, unsigned)>(
      ::dlsym(library, "nvmlSystemGetDriverVersion"));
  char text[80] = "";
  if (!begin || !version || begin() != 0 || version(text, sizeof text) != 0) {
    return "unknown";
  }
  return text;
}

}  // namespace

by_hand by_hand::find() {
  by_hand found;
  void* const cuda =
      open_library("libcudart.so." + std::to_string(CUDART_VERSION / 1000));
  using mwbench::find;
  find(cuda, "cudaDriverGetVersion", found.driver_version);
  find(cuda, "cudaEventCreateWithFlags", found.create_event);
  find(cuda, "cudaEventDestroy", found.destroy_event);
  find(cuda, "cudaEventQuery", found.query_event);
  find(cuda, "cudaEventRecord", found.record_event);
  find(cuda, "cudaFree", found.free);
  find(cuda, "cudaGetDeviceCount", found.device_count);
  find(cuda, EXPORTED(cudaGetDeviceProperties), found.device_properties);
  find(cuda, "cudaGetErrorString", found.error_text);
  find(cuda, "cudaGetLastError", found.last_error);
  find(cuda, "cudaMalloc", found.allocate);
  find(cuda, "cudaRuntimeGetVersion", found.runtime_version);
  find(cuda, "cudaSetDevice", found.set_device);
  find(cuda, "cudaStreamSynchronize", found.synchronize);
  found.is_emulated = ::dlsym(cuda, "cudaEmulatedEnqueue") != nullptr;
  void* const nccl = open_library("libnccl.so.2");
  find(nccl, "ncclAllReduce", found.all_reduce);
  find(nccl, "ncclGetErrorString", found.nccl_error_text);
  find(nccl, "ncclGetVersion", found.nccl_version);
  return found;
}

void by_hand::check(cudaError_t result) const {
  if (result != cudaSuccess) throw std::runtime_error(error_text(result));
}

void by_hand::check(ncclResult_t result) const {
  if (result != ncclSuccess) throw std::runtime_error(nccl_error_text(result));
}

fields facts_of(const by_hand& cuda, int device) {
  int driver = 0;
  int runtime = 0;
  int nccl = 0;
  int devices = 0;
  cudaDeviceProp properties{};
  cuda.check(cuda.driver_version(&driver));
  cuda.check(cuda.runtime_version(&runtime));
  cuda.check(cuda.device_count(&devices));
  cuda.check(cuda.device_properties(&properties, device));
  cuda.check(cuda.nccl_version(&nccl));
  fields facts{{"emulated", cuda.is_emulated}};
  if (cuda.is_emulated) {
    facts["note"] = "emulated: these figures say nothing about speed";
  }
  facts["gpu"] = properties.name;
  facts["gpus"] = devices;
  facts["driver"] = cuda.is_emulated ? "emulated" : driver_of_machine();
  facts["driver_cuda"] = version_of(driver);
  facts["cuda"] = version_of(runtime);
  facts["nccl"] = nccl_version_of(nccl);
  return facts;
}

summed_by_hand::summed_by_hand(const by_hand& cuda, const float* from, float* into,
                               std::size_t count)
    : cuda_(cuda), from_(from), into_(into), count_(count) {
  cuda_.check(cuda_.create_event(&event_, cudaEventDisableTiming));
}

summed_by_hand::~summed_by_hand() { (void)cuda_.destroy_event(event_); }

void summed_by_hand::start(ncclComm_t on, cudaStream_t stream) const {
  cuda_.check(cuda_.all_reduce(from_, into_, count_, ncclFloat, ncclSum, on, stream));
}

void summed_by_hand::spin(ncclComm_t on, cudaStream_t stream, int times,
                          samples& took) const {
  for (int i = 0; i < times; ++i) {
    const auto begin = now_ns();
    start(on, stream);
    cuda_.check(cuda_.record_event(event_, stream));
    cudaError_t state = cudaErrorNotReady;
    while (state == cudaErrorNotReady) state = cuda_.query_event(event_);
    took.add(us_since(begin));
    // Not ready counts as an error of the thread's.
    (void)cuda_.last_error();
    cuda_.check(state);
  }
}

void summed_by_hand::synchronize(ncclComm_t on, cudaStream_t stream, int times,
                                 samples& took) const {
  for (int i = 0; i < times; ++i) {
    const auto begin = now_ns();
    start(on, stream);
    cuda_.check(cuda_.synchronize(stream));
    took.add(us_since(begin));
  }
}

}  // namespace mwbench
