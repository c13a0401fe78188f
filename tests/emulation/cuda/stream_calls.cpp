// cudaStream*, without captures.
#include <cuda_runtime_api.h>

#include <algorithm>

#include "entry.hpp"
#include "submit.hpp"

using namespace emulated;

namespace {

constexpr int greatest_priority = -5;

}  // namespace

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags,
                                         int priority) {
  return enter(ordinary, [&] {
    if (stream == nullptr || (flags & ~unsigned{cudaStreamNonBlocking}) != 0)
      return cudaErrorInvalidValue;
    const auto made = machine::here()
                          .on(current_device())
                          .make_stream(flags, std::clamp(priority, greatest_priority, 0));
    *stream = static_cast<cudaStream_t>(machine::here().streams.add(made));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return enter(freeing, [&] {
    const auto removed = machine::here().streams.remove(handle);
    if (!removed) return cudaErrorInvalidResourceHandle;
    machine::here().capturing.abandon(*removed);
    removed->end();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return enter_stream(asking, handle, [&](const stream_ptr& asked) {
    if (const auto error = shown_by(*asked); error != cudaSuccess) return error;
    const auto refused = refuse_if_captured(asked);
    if (refused != cudaSuccess) return refused;
    return asked->busy() ? cudaErrorNotReady : cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return enter_stream(asking, handle, [&](const stream_ptr& waited_for) {
    // Asked once: what breaks from here on is the wait's to tell.
    if (machine::here().broken() != cudaSuccess) return shown_by(*waited_for);
    const auto refused = refuse_if_captured(waited_for);
    return refused == cudaSuccess ? wait_on_host(mark(waited_for)) : refused;
  });
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  return enter_stream(ordinary, handle, [&](const stream_ptr& asked) {
    *priority = asked->priority;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned int* flags) {
  return enter_stream(ordinary, handle, [&](const stream_ptr& asked) {
    *flags = asked->flags;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetId(cudaStream_t handle, unsigned long long* id) {
  return enter_stream(ordinary, handle, [&](const stream_ptr& asked) {
    *id = asked->id;
    return cudaSuccess;
  });
}

// Believed to make no context: a stream is known with its device.
cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* device) {
  return enter_stream(contextless, handle, [&](const stream_ptr& asked) {
    *device = asked->device;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return enter(ordinary, [&] {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = greatest_priority;
    return cudaSuccess;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function,
                               void* argument) {
  return enter_stream(ordinary, handle, [&](const stream_ptr& to) {
    if (function == nullptr) return cudaErrorInvalidValue;
    return submit(to, std::make_shared<node>([function, argument] {
                    in_host_function() = true;
                    function(argument);
                    in_host_function() = false;
                  }));
  });
}
