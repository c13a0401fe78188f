#include "nccl/stream_poll.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "nccl/cuda_error.hpp"
#include "nccl/stream_facts.hpp"

namespace manyworlds::inline v0::detail::nccl {

namespace {

constexpr std::size_t slice_of_pageable = std::size_t{256} * 1024;

/// Whether CUDA would stop the calling thread for it.
bool is_pageable(const cuda_library& cuda, const void* at, bool is_device) {
  cudaPointerAttributes attributes = {};
  if (const auto error = cuda.cudaPointerGetAttributes(&attributes, at);
      error != cudaSuccess) {
    refuse("a copy", error);
  }
  if (attributes.type != cudaMemoryTypeUnregistered) return false;
  if (!is_device) return true;
  throw std::invalid_argument(
      "copy: what is given as device memory is unregistered host memory");
}

/// What is on `before` now comes before what is enqueued on `then` later.
void chain(const cuda_library& cuda, device_stream before, device_stream then,
           int device) {
  if (before == then) return;
  const device_scope there(device_of(cuda, before, "a copy", device));
  check_not_captured(cuda, before, "a copy");
  cudaEvent_t event = nullptr;
  auto error = cuda.cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  if (error == cudaSuccess) error = cuda.cudaEventRecord(event, before.handle());
  if (error == cudaSuccess) error = cuda.cudaStreamWaitEvent(then.handle(), event, 0);
  // Freed by CUDA once the stream has waited.
  if (event) (void)cuda.cudaEventDestroy(event);
  if (error != cudaSuccess) refuse("a copy", error);
}

}  // namespace

stream_poll::stream_poll(device_stream on, const copy_plan* copy, int device)
    : on_(on),
      copy_(copy ? std::optional<copy_plan>(*copy) : std::nullopt),
      device_(device) {}

stream_poll::~stream_poll() { destroy_event(); }

bool stream_poll::is_of_this_thread() const noexcept {
  return on_.handle() == cudaStreamPerThread ||
         (copy_ && copy_->after.handle() == cudaStreamPerThread);
}

void stream_poll::begin_here() {
  begin();
  if (!has_more()) return;
  slice_ = copy_->bytes;
  const device_scope here(device_);
  enqueue_piece();
  record();
}

watcher::progress stream_poll::ask() noexcept {
  watcher::progress told = watcher::progress::over;
  try {
    told = advance();
  } catch (...) {
    thrown_ = std::current_exception();
  }
  if (told == watcher::progress::over) {
    destroy_event();
    heard->give();
  }
  return told;
}

watcher::progress stream_poll::advance() {
  if (!event_) begin();
  const cuda_library& cuda = cuda_library::get();
  const device_scope here(device_);
  const auto state = cuda.cudaEventQuery(event_);
  if (state == cudaErrorNotReady) {
    // The thread's last error must not stay set: the next check would report it.
    (void)cuda.cudaGetLastError();
    return watcher::progress::not_yet;
  }
  if (state != cudaSuccess) refuse(asked(), state);
  if (!has_more()) return watcher::progress::over;
  enqueue_piece();
  record();
  return watcher::progress::goes_on;
}

void stream_poll::begin() {
  const cuda_library& cuda = cuda_for(asked());
  const int awaiting = device_;
  device_ = device_of(cuda, on_, asked(), awaiting);
  const device_scope on_its_device(device_);
  check_not_captured(cuda, on_, asked());
  // Made for each wait: a pool would have to be of the stream's device and context.
  if (const auto error = cuda.cudaEventCreateWithFlags(&event_, cudaEventDisableTiming);
      error != cudaSuccess) {
    refuse(asked(), error);
  }
  if (copy_) {
    if (copy_->to_device && copy_->from_device) {
      chain(cuda, copy_->after, copy_->on, awaiting);
    }
    prepare_copy();
  }
  record();
}

// CUDA copies memory that is not pinned while it is called, after everything before it on
// the stream: it is called when the stream has got there, a slice at a time.
void stream_poll::prepare_copy() {
  const cuda_library& cuda = cuda_library::get();
  const bool to_pageable = is_pageable(cuda, copy_->to, copy_->to_device);
  const bool from_pageable = is_pageable(cuda, copy_->from, copy_->from_device);
  const bool is_slow = to_pageable || from_pageable;
  slice_ = is_slow ? slice_of_pageable : copy_->bytes;
  if (!is_slow && has_more()) enqueue_piece();
}

bool stream_poll::has_more() const noexcept {
  return copy_ && begun_ < copy_->bytes && !is_cancelled();
}

void stream_poll::enqueue_piece() {
  const std::size_t bytes = std::min(slice_, copy_->bytes - begun_);
  const auto error = cuda_library::get().cudaMemcpyAsync(
      static_cast<std::byte*>(copy_->to) + begun_,
      static_cast<const std::byte*>(copy_->from) + begun_, bytes, cudaMemcpyDefault,
      on_.handle());
  if (error != cudaSuccess) refuse(asked(), error);
  begun_ += bytes;
}

void stream_poll::record() {
  const auto error = cuda_library::get().cudaEventRecord(event_, on_.handle());
  if (error != cudaSuccess) refuse(asked(), error);
}

void stream_poll::destroy_event() noexcept {
  if (!event_) return;
  const device_scope here(device_);
  (void)cuda_library::get().cudaEventDestroy(std::exchange(event_, nullptr));
}

}  // namespace manyworlds::inline v0::detail::nccl
