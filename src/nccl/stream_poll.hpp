// Stream poll: what a reactor's watcher does for a wait for a stream.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>

#include "manyworlds/nccl/copy.hpp"
#include "nccl/async_result.hpp"
#include "nccl/watcher.hpp"

namespace manyworlds::inline v0::detail::nccl {

/// The wait, on its reactor, and the watcher share it; the watcher may be in CUDA still
/// when the wait is gone.
class stream_poll final : public watcher::question {
 public:
  /// `device`: the awaiting thread's own, where a stream is of that one; else any.
  stream_poll(device_stream on, const copy_plan* copy, int device);
  stream_poll(const stream_poll&) = delete;
  stream_poll& operator=(const stream_poll&) = delete;
  ~stream_poll();

  /// It is given when the stream has got there, and set before that.
  std::shared_ptr<async_result> heard;

  /// Returns whether the stream is another one on every other thread.
  [[nodiscard]] bool is_of_this_thread() const noexcept;
  /// Enqueues all that there is to be enqueued; throws what CUDA refuses.
  void begin_here();
  watcher::progress ask() noexcept override;

  /// Returns what was asked, for errors.
  [[nodiscard]] const char* asked() const noexcept {
    return copy_ ? "waiting for a copy" : "waiting for a stream";
  }

  /// Begins no further piece. Thread: any.
  void cancel() noexcept { is_cancelled_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool is_cancelled() const noexcept {
    return is_cancelled_.load(std::memory_order_relaxed);
  }

  // On the reactor, when it has heard.
  [[nodiscard]] bool has_failed() const noexcept { return thrown_ != nullptr; }
  void rethrow() const {
    if (thrown_) std::rethrow_exception(thrown_);
  }

 private:
  [[nodiscard]] watcher::progress advance();
  void begin();
  void prepare_copy();
  [[nodiscard]] bool has_more() const noexcept;
  void enqueue_piece();
  void record();
  void destroy_event() noexcept;

  const device_stream on_;
  const std::optional<copy_plan> copy_;
  int device_;
  std::size_t begun_ = 0;
  std::size_t slice_ = 0;
  cudaEvent_t event_ = nullptr;
  std::exception_ptr thrown_;
  std::atomic<bool> is_cancelled_{false};
};

}  // namespace manyworlds::inline v0::detail::nccl
