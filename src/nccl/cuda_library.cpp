#include "cuda_library.hpp"

#include <fmt/format.h>

namespace manyworlds::inline v0::nccl {

namespace {

cuda_library find_cuda() {
  cuda_library found;
  const std::string name = fmt::format("libcudart.so.{}", CUDART_VERSION / 1000);
  const shared_library library(name.c_str());
  if (!library) {
    found.objection = fmt::format(
        "the CUDA runtime cannot be loaded ({}): install CUDA {} or put its "
        "folder on the library path",
        library.error(), CUDART_VERSION / 1000);
    return found;
  }
  const char* missing = nullptr;
#define MANYWORLDS_FIND(symbol, ...)                                                   \
  found.symbol = library.find<std::remove_pointer_t<decltype(found.symbol)>>(#symbol); \
  if (!found.symbol) missing = #symbol;
  MANYWORLDS_CUDA_FUNCTIONS(MANYWORLDS_FIND)
  MANYWORLDS_CUDA_OVERLOADED_FUNCTIONS(MANYWORLDS_FIND)
#undef MANYWORLDS_FIND
  if (missing) {
    found.objection = fmt::format("{} has no {}: it is too old", name, missing);
    return found;
  }
  using stream_device_function = cudaError_t(cudaStream_t, int*);
  found.cudaStreamGetDevice = library.find<stream_device_function>("cudaStreamGetDevice");
  using entry_point_function =
      cudaError_t(const char*, void**, unsigned, unsigned long long,
                  cudaDriverEntryPointQueryResult*);
  if (auto* entry_point =
          library.find<entry_point_function>("cudaGetDriverEntryPointByVersion")) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    // The calls of 11.7, which need no device attribute any more.
    if (entry_point("cuStreamWriteValue32", &function, 11070, cudaEnableDefault,
                    &result) == cudaSuccess &&
        result == cudaDriverEntryPointSuccess) {
      found.write_word = reinterpret_cast<write_word_function*>(function);
    }
    (void)found.cudaGetLastError();
  }
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

capture_scope::capture_scope() noexcept {
  (void)cuda_library::get().cudaThreadExchangeStreamCaptureMode(&mode_);
}

capture_scope::~capture_scope() {
  (void)cuda_library::get().cudaThreadExchangeStreamCaptureMode(&mode_);
}

device_scope::device_scope(int device) noexcept {
  const cuda_library& cuda = cuda_library::get();
  if (cuda.cudaGetDevice(&before_) != cudaSuccess || before_ == device) before_ = -1;
  if (before_ != -1) (void)cuda.cudaSetDevice(device);
}

device_scope::~device_scope() {
  const cuda_library& cuda = cuda_library::get();
  if (before_ != -1) (void)cuda.cudaSetDevice(before_);
}

}  // namespace manyworlds::inline v0::nccl
