#include "nccl/completion.hpp"

#include <chrono>
#include <new>
#include <stdexcept>

#include "nccl/cuda_library.hpp"
#include "nccl/waiting.hpp"

namespace manyworlds::inline v0::detail::nccl {

namespace {

/// Made at once, as making them later may wait for the driver. As many as a world has
/// operations outstanding.
constexpr std::size_t events_at_first = 32;
constexpr std::chrono::seconds longest_proof(1);

cudaEvent_t make_event() {
  const cuda_library& cuda = cuda_library::get();
  cudaEvent_t event = nullptr;
  // Without timing recording one costs a tenth.
  const cudaError_t error = cuda.cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  if (error != cudaSuccess) {
    throw std::runtime_error("no event is available: " + cuda.describe(error));
  }
  return event;
}

}  // namespace

completion::completion(std::shared_ptr<device> on, cudaStream_t stream, completion_by by)
    : on_(std::move(on)), stream_(stream), by_(by), between_(make_event()) {
  if (by_ == completion_by::words) word_ = on_->words().take();
  if (!word_ || !proves_words()) by_ = completion_by::events;
  if (by_ == completion_by::events) make_events();
}

// Some drivers have the call and refuse it, and some devices ignore what it wrote.
bool completion::proves_words() noexcept {
  const cuda_library& cuda = cuda_library::get();
  if (!cuda.write_word || cuda.write_word(stream_, word_.device, 1, 0) != 0) return false;
  const bool seen = await_polling([this] { return word_.read() == 1; },
                                  later(std::chrono::steady_clock::now(), longest_proof));
  if (seen) word_.write(0);
  return seen;
}

void completion::make_events() {
  unused_.reserve(2 * events_at_first);
  while (unused_.size() < events_at_first) unused_.push_back(make_event());
}

cudaError_t completion::mark(std::uint64_t number) noexcept {
  if (by_ == completion_by::events) return mark_by_event(number);
  // Errors of the driver have the numbers of the runtime's.
  return static_cast<cudaError_t>(cuda_library::get().write_word(
      stream_, word_.device, static_cast<std::uint32_t>(number), 0));
}

cudaError_t completion::mark_by_event(std::uint64_t number) noexcept {
  try {
    cudaEvent_t event = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (!unused_.empty()) {
        event = unused_.back();
        unused_.pop_back();
      }
    }
    if (!event) event = make_event();
    const cudaError_t error = cuda_library::get().cudaEventRecord(event, stream_);
    bool is_first = false;
    {
      const std::lock_guard lock(mutex_);
      if (error == cudaSuccess) {
        marks_.emplace_back(number, event);
        is_first = !std::exchange(is_watched_, true);
      } else {
        unused_.push_back(event);
      }
    }
    if (is_first) on_->watching().add(shared_from_this());
    return error;
  } catch (const std::exception&) {
    return cudaErrorMemoryAllocation;
  }
}

cudaError_t completion::join(cudaStream_t other) noexcept {
  return order(other, stream_);
}

cudaError_t completion::release_to(cudaStream_t other) noexcept {
  return order(stream_, other);
}

// One event for all: who waits for it waits for what was recorded when it was asked to.
cudaError_t completion::order(cudaStream_t first, cudaStream_t then) noexcept {
  if (first == then) return cudaSuccess;
  const cuda_library& cuda = cuda_library::get();
  const cudaError_t error = cuda.cudaEventRecord(between_, first);
  return error != cudaSuccess ? error : cuda.cudaStreamWaitEvent(then, between_, 0);
}

std::uint64_t completion::reached() noexcept {
  // Acquire: what the operations before it have written is seen.
  std::uint64_t so_far = reached_.load(std::memory_order_acquire);
  if (by_ == completion_by::events) return so_far;
  // The word has the lower half of the number: what it has grown by is right also where
  // it has wrapped.
  so_far += word_.read() - static_cast<std::uint32_t>(so_far);
  reached_.store(so_far, std::memory_order_relaxed);
  return so_far;
}

watcher::progress completion::ask() noexcept {
  const std::lock_guard lock(asking_);
  return is_closed_ ? watcher::progress::over : advance();
}

watcher::progress completion::advance() noexcept {
  const cuda_library& cuda = cuda_library::get();
  for (bool any = false;; any = true) {
    std::pair<std::uint64_t, cudaEvent_t> oldest;
    {
      const std::lock_guard lock(mutex_);
      is_watched_ = !marks_.empty();
      if (!is_watched_) return watcher::progress::over;
      oldest = marks_.front();
    }
    if (const cudaError_t error = cuda.cudaEventQuery(oldest.second);
        error != cudaSuccess) {
      // The thread's last error is not for the next call to find.
      (void)cuda.cudaGetLastError();
      if (is_sticky(error)) on_->note_failed(error);
      return any ? watcher::progress::goes_on : watcher::progress::not_yet;
    }
    // Release: pairs with `reached`.
    reached_.store(oldest.first, std::memory_order_release);
    const std::lock_guard lock(mutex_);
    marks_.pop_front();
    unused_.push_back(oldest.second);
  }
}

void completion::close(bool drained) noexcept {
  {
    const std::lock_guard lock(asking_);
    is_closed_ = true;
  }
  const cuda_library& cuda = cuda_library::get();
  if (drained && word_) on_->words().give_back(word_);
  const std::lock_guard lock(mutex_);
  for (cudaEvent_t event : unused_) (void)cuda.cudaEventDestroy(event);
  // Those that are not over yet go when they are.
  for (const auto& [number, event] : marks_) (void)cuda.cudaEventDestroy(event);
  (void)cuda.cudaEventDestroy(between_);
  unused_.clear();
  marks_.clear();
}

}  // namespace manyworlds::inline v0::detail::nccl
