#include "nccl/cuda_library.hpp"

#include <fmt/format.h>

#include <array>
#include <atomic>

namespace manyworlds::inline v0::detail::nccl {

namespace {

/// The driver's functions, of a version where the runtime can be asked for one (12.5).
class driver_functions {
 public:
  explicit driver_functions(const shared_library& runtime)
      : entry_point_(runtime.find<entry_point>("cudaGetDriverEntryPointByVersion")),
        older_(runtime.find<older_entry_point>("cudaGetDriverEntryPoint")) {}

  template <class Function>
  void find(const char* name, unsigned version, Function*& into) const {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    cudaError_t error = cudaErrorNotSupported;
    if (entry_point_) {
      error = entry_point_(name, &function, version, cudaEnableDefault, &result);
    } else if (older_) {
      // Those of the runtime's own version.
      error = older_(name, &function, cudaEnableDefault, &result);
    }
    if (error == cudaSuccess && result == cudaDriverEntryPointSuccess) {
      into = reinterpret_cast<Function*>(function);
    }
  }

 private:
  using entry_point = cudaError_t(const char*, void**, unsigned, unsigned long long,
                                  cudaDriverEntryPointQueryResult*);
  using older_entry_point = cudaError_t(const char*, void**, unsigned long long,
                                        cudaDriverEntryPointQueryResult*);
  entry_point* entry_point_;
  older_entry_point* older_;
};

constexpr int most_devices = 256;

cuda_library find_cuda() {
  cuda_library found;
  const std::string name = fmt::format("libcudart.so.{}", CUDART_VERSION / 1000);
  const shared_library library(name.c_str());
  if (!library) {
    found.error = fmt::format(
        "the CUDA runtime cannot be loaded ({}): install CUDA {} or put its "
        "folder on the library path",
        library.error(), CUDART_VERSION / 1000);
    return found;
  }
  const char* missing = nullptr;
#define MANYWORLDS_FIND(symbol, parameters)                                            \
  found.symbol = library.find<std::remove_pointer_t<decltype(found.symbol)>>(#symbol); \
  if (!found.symbol) missing = #symbol;
  MANYWORLDS_CUDA_FUNCTIONS(MANYWORLDS_FIND)
  MANYWORLDS_FIND(cudaGetErrorName, )
  MANYWORLDS_FIND(cudaGetErrorString, )
#undef MANYWORLDS_FIND
  if (missing) {
    found.error = fmt::format("{} has no {}: it is too old", name, missing);
    return found;
  }
  (void)found.cudaRuntimeGetVersion(&found.runtime);
  using stream_device_function = cudaError_t(cudaStream_t, int*);
  found.cudaStreamGetDevice = library.find<stream_device_function>("cudaStreamGetDevice");
  const driver_functions driver(library);
  // The calls of 11.7 need no device attribute.
  driver.find("cuStreamWriteValue32", 11070, found.write_word);
  driver.find("cuDevicePrimaryCtxRetain", 12000, found.retain_context);
  driver.find("cuCtxPushCurrent", 12000, found.push_context);
  driver.find("cuCtxPopCurrent", 12000, found.pop_context);
  driver.find("cuStreamGetCtx", 12000, found.stream_context);
  driver.find("cuCtxGetDevice", 12000, found.context_device);
  (void)found.cudaGetLastError();
  return found;
}

}  // namespace

const cuda_library& cuda_library::get() {
  // What is loaded is the process's, and never changes: not state of the library's own.
  static const cuda_library found = find_cuda();
  return found;
}

std::string cuda_library::describe(cudaError_t error) const {
  if (!cudaGetErrorName) return fmt::format("CUDA error {}", static_cast<int>(error));
  (void)cudaGetLastError();
  return fmt::format("{} ({})", cudaGetErrorName(error), cudaGetErrorString(error));
}

bool is_sticky(cudaError_t error) noexcept {
  // cudaErrorNvlinkUncorrectable and cudaErrorContained, which the headers of 12.1 do not
  // both know.
  const auto number = static_cast<int>(error);
  if (number == 220 || number == 226) return true;
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorECCUncorrectable:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

bool cuda_library::tells_devices() const noexcept {
  return cudaStreamGetDevice ||
         (stream_context && context_device && push_context && pop_context);
}

cudaError_t cuda_library::find_device(cudaStream_t stream, int& device) const noexcept {
  if (!tells_devices()) return cudaSuccess;
  if (cudaStreamGetDevice) return cudaStreamGetDevice(stream, &device);
  // Errors of the driver have the numbers of the runtime's.
  CUctx_st* context = nullptr;
  int error = stream_context(stream, &context);
  if (error != 0) return static_cast<cudaError_t>(error);
  // Before CUDA 13 the driver tells the device of the thread's own context only.
  error = push_context(context);
  if (error != 0) return static_cast<cudaError_t>(error);
  error = context_device(&device);
  (void)pop_context(&context);
  return static_cast<cudaError_t>(error);
}

capture_scope::capture_scope() noexcept {
  (void)cuda_library::get().cudaThreadExchangeStreamCaptureMode(&mode_);
}

capture_scope::~capture_scope() {
  (void)cuda_library::get().cudaThreadExchangeStreamCaptureMode(&mode_);
}

bool cuda_library::enter_device(int device) const noexcept {
  // The driver's own, for as long as the process lives: kept so that it is asked once.
  static std::array<std::atomic<CUctx_st*>, most_devices> contexts{};
  if (!retain_context || !push_context || !pop_context) return false;
  if (device < 0 || device >= most_devices) return false;
  auto& known = contexts[static_cast<std::size_t>(device)];
  CUctx_st* context = known.load(std::memory_order_relaxed);
  if (!context) {
    if (retain_context(&context, device) != 0) return false;
    known.store(context, std::memory_order_relaxed);
  }
  return push_context(context) == 0;
}

device_scope::device_scope(int device) noexcept {
  const cuda_library& cuda = cuda_library::get();
  entered_ = cuda.enter_device(device);
  // And left so: what was before may be a device without a context.
  if (!entered_) (void)cuda.cudaSetDevice(device);
}

device_scope::~device_scope() {
  CUctx_st* ours = nullptr;
  if (entered_) (void)cuda_library::get().pop_context(&ours);
}

}  // namespace manyworlds::inline v0::detail::nccl
