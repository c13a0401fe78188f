// Completion: what a world's stream has reached.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "manyworlds/nccl/device_options.hpp"
#include "nccl/device.hpp"
#include "nccl/pinned_words.hpp"
#include "nccl/watcher.hpp"

namespace manyworlds::inline v0::detail::nccl {

/// Numbers the work of one stream and tells how far it has got; and orders the stream
/// against others. That a number is reached says nothing about its data: after an abort
/// the stream gets there too.
///
/// The communicator makes it with itself. A thread that launches holds it as long as it
/// may use it.
class completion final : public watcher::question,
                         public std::enable_shared_from_this<completion> {
 public:
  /// May block. It goes by events, no matter what was asked, where the driver writes no
  /// words. Thread: a helper. Errors: std::runtime_error if it can have no events.
  completion(std::shared_ptr<device> on, cudaStream_t stream, completion_by by);
  completion(const completion&) = delete;
  completion& operator=(const completion&) = delete;
  /// What was not closed is leaked: its stream may still get there.
  ~completion() = default;

  /// Returns what it really uses.
  [[nodiscard]] completion_by by() const noexcept { return by_; }

  // On the launching thread.
  /// Marks the end of the operation with that number, after its calls. Numbers grow,
  /// and gaps are fine; at most 2^31 of them are unreached.
  [[nodiscard]] cudaError_t mark(std::uint64_t number) noexcept;
  /// Makes the world's stream wait for what is on that stream now; does nothing if it
  /// is the same.
  [[nodiscard]] cudaError_t join(cudaStream_t other) noexcept;
  /// Makes that stream wait for what is on the world's now; does nothing if it is the
  /// same.
  [[nodiscard]] cudaError_t release_to(cudaStream_t other) noexcept;

  // On the home reactor's thread.
  /// Returns the highest number that the stream has reached; 0 at first. It is one load
  /// and no call: the stream writes words, and the device's watcher asks events.
  [[nodiscard]] std::uint64_t reached() noexcept;

  // On a helper thread.
  /// Called before the stream is destroyed; nothing is marked or asked afterwards. If
  /// it is drained, the word may have another owner.
  void close(bool drained) noexcept;

 private:
  void make_events();
  [[nodiscard]] bool proves_words() noexcept;
  [[nodiscard]] cudaError_t mark_by_event(std::uint64_t number) noexcept;
  [[nodiscard]] cudaError_t order(cudaStream_t first, cudaStream_t then) noexcept;
  watcher::progress ask() noexcept override;
  [[nodiscard]] watcher::progress advance() noexcept;

  const std::shared_ptr<device> on_;
  const cudaStream_t stream_;
  completion_by by_;
  pinned_word word_;
  cudaEvent_t between_ = nullptr;
  /// Written by the watcher where there are events, else by the reactor.
  std::atomic<std::uint64_t> reached_{0};

  /// It is held while an event is asked, so that the event is not destroyed meanwhile.
  std::mutex asking_;
  bool is_closed_ = false;

  std::mutex mutex_;
  bool is_watched_ = false;  ///< the watcher has the marks
  std::deque<std::pair<std::uint64_t, cudaEvent_t>> marks_;
  std::vector<cudaEvent_t> unused_;
};

}  // namespace manyworlds::inline v0::detail::nccl
