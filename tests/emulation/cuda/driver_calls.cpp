// The few functions of the driver that programs reach through the runtime.
#include <cuda.h>
// As the header of the driver renames them.
#undef cuStreamWaitValue32
#undef cuStreamWaitValue64
#undef cuStreamWriteValue32
#undef cuStreamWriteValue64
#undef cuCtxGetDevice
#undef cuStreamGetCtx
#undef cuCtxPopCurrent
#undef cuCtxPushCurrent
#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string_view>
#include <thread>
#include <type_traits>

#include "entry.hpp"
#include "settings.hpp"
#include "submit.hpp"

using namespace emulated;

namespace {

// The codes of the two interfaces are the same where these can fail.
CUresult as_driver_result(cudaError_t error) { return static_cast<CUresult>(error); }

template <class Word>
Word* word_at(CUdeviceptr address) {
  auto* const word = reinterpret_cast<Word*>(address);
  const bool usable =
      address % sizeof(Word) == 0 && machine::here().memory.holds(word, sizeof(Word));
  return usable ? word : nullptr;
}

template <class Word>
CUresult write_value(CUstream stream, CUdeviceptr address, Word value, unsigned flags) {
  if (!has_context()) return CUDA_ERROR_INVALID_CONTEXT;
  return as_driver_result(attempt_stream(ordinary, stream, [&](const stream_ptr& on) {
    auto* const word = word_at<Word>(address);
    if (word == nullptr || (flags & ~1u) != 0) return cudaErrorInvalidValue;
    // Release: what the stream did before is seen by who sees the word.
    return submit(on, std::make_shared<node>([word, value] {
                    std::atomic_ref(*word).store(value, std::memory_order_release);
                  }));
  }));
}

template <class Word>
bool satisfied(Word found, Word value, unsigned condition) {
  using difference = std::make_signed_t<Word>;
  switch (condition) {
    case CU_STREAM_WAIT_VALUE_EQ:
      return found == value;
    case CU_STREAM_WAIT_VALUE_AND:
      return (found & value) != 0;
    case CU_STREAM_WAIT_VALUE_NOR:
      return static_cast<Word>(~(found | value)) != 0;
    default:
      return static_cast<difference>(found - value) >= 0;
  }
}

template <class Word>
CUresult wait_value(CUstream stream, CUdeviceptr address, Word value, unsigned flags) {
  if (!has_context()) return CUDA_ERROR_INVALID_CONTEXT;
  return as_driver_result(attempt_stream(ordinary, stream, [&](const stream_ptr& on) {
    auto* const word = word_at<Word>(address);
    const unsigned condition = flags & ~unsigned{CU_STREAM_WAIT_VALUE_FLUSH};
    if (word == nullptr || condition > CU_STREAM_WAIT_VALUE_NOR)
      return cudaErrorInvalidValue;
    return submit(on, std::make_shared<node>([=] {
                    // As the device does: nothing tells it of the host's writes.
                    const auto found = [&] {
                      return std::atomic_ref(*word).load(std::memory_order_acquire);
                    };
                    while (!satisfied(found(), value, condition) &&
                           machine::here().broken() == cudaSuccess)
                      std::this_thread::sleep_for(std::chrono::microseconds{50});
                  }));
  }));
}

CUresult retain_primary(CUcontext* context, CUdevice ordinal) {
  if (!machine::here().has(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  return as_driver_result(attempt_at([=] { return ordinal; }, contextless,
                                     [&] {
                                       machine::here().on(ordinal).has_context = true;
                                       *context = reinterpret_cast<CUcontext>(
                                           static_cast<std::uintptr_t>(ordinal) + 1);
                                       return cudaSuccess;
                                     }));
}

// The lock is that of the context pushed: one that another thread keeps of the device
// that the calling thread had before has nothing to do with it.
CUresult push_current(CUcontext context) {
  const auto ordinal = static_cast<int>(reinterpret_cast<std::uintptr_t>(context)) - 1;
  if (!machine::here().has(ordinal)) return CUDA_ERROR_INVALID_CONTEXT;
  return as_driver_result(attempt_at([=] { return ordinal; }, contextless,
                                     [&] {
                                       push_context(ordinal);
                                       return cudaSuccess;
                                     }));
}

CUresult pop_current(CUcontext* context) {
  // Also when the device is broken: it is the thread's own affair.
  const int ordinal = pop_context();
  if (ordinal < 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (context != nullptr)
    *context = reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(ordinal) + 1);
  return CUDA_SUCCESS;
}

CUresult stream_context(CUstream stream, CUcontext* context) {
  return as_driver_result(
      attempt_stream(contextless, stream, [&](const stream_ptr& asked) {
        *context =
            reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(asked->device) + 1);
        return cudaSuccess;
      }));
}

CUresult context_device(CUdevice* device) {
  if (!has_context()) return CUDA_ERROR_INVALID_CONTEXT;
  *device = current_device();
  return CUDA_SUCCESS;
}

struct entry_point {
  std::string_view name;
  void* function;
};

void* find_entry_point(std::string_view name) {
  static const entry_point known[] = {
      {"cuCtxGetDevice", reinterpret_cast<void*>(&context_device)},
      {"cuCtxPopCurrent", reinterpret_cast<void*>(&pop_current)},
      {"cuCtxPushCurrent", reinterpret_cast<void*>(&push_current)},
      {"cuDevicePrimaryCtxRetain", reinterpret_cast<void*>(&retain_primary)},
      {"cuStreamGetCtx", reinterpret_cast<void*>(&stream_context)},
      {"cuStreamWriteValue32", reinterpret_cast<void*>(&write_value<cuuint32_t>)},
      {"cuStreamWriteValue64", reinterpret_cast<void*>(&write_value<cuuint64_t>)},
      {"cuStreamWaitValue32", reinterpret_cast<void*>(&wait_value<cuuint32_t>)},
      {"cuStreamWaitValue64", reinterpret_cast<void*>(&wait_value<cuuint64_t>)},
  };
  if (name.ends_with("_v2")) name.remove_suffix(3);
  if (name.starts_with("cuStreamWrite") && !chosen().writes_words) return nullptr;
  for (const entry_point& each : known)
    if (each.name == name) return each.function;
  return nullptr;
}

}  // namespace

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function,
                                             unsigned int version, unsigned long long,
                                             cudaDriverEntryPointQueryResult* status) {
  return enter(lockless, [&] {
    if (symbol == nullptr || function == nullptr) return cudaErrorInvalidValue;
    const bool too_new = version > static_cast<unsigned>(chosen().driver);
    *function = too_new ? nullptr : find_entry_point(symbol);
    const auto result = too_new                ? cudaDriverEntryPointVersionNotSufficent
                        : *function == nullptr ? cudaDriverEntryPointSymbolNotFound
                                               : cudaDriverEntryPointSuccess;
    if (status != nullptr) *status = result;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function,
                                    unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* status) {
  return cudaGetDriverEntryPointByVersion(symbol, function, runtime_version, flags,
                                          status);
}
