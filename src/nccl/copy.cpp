#include "manyworlds/nccl/copy.hpp"

#include <algorithm>
#include <stdexcept>

#include "cuda_error.hpp"
#include "stream_facts.hpp"

namespace manyworlds::inline v0 {

namespace {

constexpr std::size_t slice_of_pageable = std::size_t{256} * 1024;

cudaMemoryType kind_of(const nccl::cuda_library& cuda, const void* at) {
  cudaPointerAttributes attributes = {};
  if (const auto error = cuda.cudaPointerGetAttributes(&attributes, at);
      error != cudaSuccess) {
    nccl::refuse("a copy", error);
  }
  return attributes.type;
}

/// Whether CUDA would stop the calling thread for it.
bool is_pageable(const nccl::cuda_library& cuda, const void* at, bool is_device) {
  if (kind_of(cuda, at) != cudaMemoryTypeUnregistered) return false;
  if (!is_device) return true;
  throw std::invalid_argument(
      "copy: what is given as device memory is unregistered host memory");
}

/// What is on `before` now comes before what is enqueued on `then` later.
void chain(const nccl::cuda_library& cuda, device_stream before, device_stream then) {
  nccl::check_stream(before, "the source of a copy");
  if (before == then) return;
  const nccl::device_scope there(nccl::device_of(cuda, before, "a copy"));
  nccl::check_not_captured(cuda, before, "a copy");
  cudaEvent_t event = nullptr;
  auto error = cuda.cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  if (error == cudaSuccess) error = cuda.cudaEventRecord(event, before.handle());
  if (error == cudaSuccess) error = cuda.cudaStreamWaitEvent(then.handle(), event, 0);
  // Freed by CUDA once the stream has waited.
  if (event) (void)cuda.cudaEventDestroy(event);
  if (error != cudaSuccess) nccl::refuse("a copy", error);
}

}  // namespace

bool copy_awaiter::await_start(continuation& waiter) {
  if (plan_.bytes == 0) return false;
  prepare();
  const nccl::cuda_library& cuda = nccl::cuda_library::get();
  const nccl::device_scope here(device());
  const bool to_pageable = is_pageable(cuda, plan_.to, plan_.to_device);
  const bool from_pageable = is_pageable(cuda, plan_.from, plan_.from_device);
  if (plan_.to_device && plan_.from_device) chain(cuda, plan_.after, plan_.on);
  if (to_pageable || from_pageable) {
    slice_ = slice_of_pageable;
    return wait(waiter);
  }
  slice_ = plan_.bytes;
  if (!enqueue_more()) return false;
  return wait(waiter);
}

bool copy_awaiter::enqueue_more() noexcept {
  if (begun_ == plan_.bytes || is_cancelled()) return false;
  const nccl::device_scope here(device());
  const std::size_t bytes = std::min(slice_, plan_.bytes - begun_);
  const auto error = nccl::cuda_library::get().cudaMemcpyAsync(
      static_cast<std::byte*>(plan_.to) + begun_,
      static_cast<const std::byte*>(plan_.from) + begun_, bytes, cudaMemcpyDefault,
      plan_.on.handle());
  if (error != cudaSuccess) {
    fail(error);
    return false;
  }
  begun_ += bytes;
  return true;
}

}  // namespace manyworlds::inline v0
