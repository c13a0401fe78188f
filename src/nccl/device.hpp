// Device: one GPU as one runtime uses it.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "manyworlds/nccl/device_options.hpp"
#include "manyworlds/time.hpp"
#include "nccl/error_message.hpp"
#include "nccl/helper_threads.hpp"
#include "nccl/launcher.hpp"
#include "nccl/pinned_words.hpp"
#include "nccl/watcher.hpp"

namespace manyworlds::inline v0::detail::nccl {

/// Returns the multiprocessors that a world's kernels occupy. NCCL rounds the channels
/// of messages up to a power of two (2.28.9 src/graph/paths.cc,
/// ncclTopoComputeP2pChannels). That is more than was allowed unless what it is given
/// is one.
[[nodiscard]] inline int occupied_by(const device_options& options) noexcept {
  return static_cast<int>(
      std::bit_floor(static_cast<unsigned>(std::max(options.most_multiprocessors, 1))));
}

/// The worlds of one runtime on it share it. Thread-safe. As `device_registry::open`
/// gives it, it holds a share of the multiprocessors until the last copy of the pointer
/// is gone.
class device final : public watcher::question,
                     public std::enable_shared_from_this<device> {
 public:
  /// Communicators that could not be freed: with this many no new one is made.
  static constexpr int most_stuck = 4;
  /// Creations that not all members came to: each costs the process a thread of NCCL's
  /// and a descriptor for as long as it lives.
  static constexpr int most_roots = 128;

  device(int ordinal, std::string identity, int multiprocessors, int capability,
         std::shared_ptr<helper_threads> helpers);
  device(const device&) = delete;
  device& operator=(const device&) = delete;

  [[nodiscard]] int ordinal() const noexcept { return ordinal_; }
  /// "<boot id> <host name> <PCI bus id>": equal for ranks that share a GPU.
  [[nodiscard]] const std::string& identity() const noexcept { return identity_; }
  [[nodiscard]] int multiprocessors() const noexcept { return multiprocessors_; }
  /// 90 is compute capability 9.0 (sm90).
  [[nodiscard]] int capability() const noexcept { return capability_; }

  /// Reserves a share. Returns false if fewer are left.
  [[nodiscard]] bool reserve(int multiprocessors) noexcept;
  void give_back(int multiprocessors) noexcept;
  [[nodiscard]] int reserved() const noexcept { return reserved_; }

  [[nodiscard]] helper_threads& helpers() noexcept { return *helpers_; }
  [[nodiscard]] launcher& launching() noexcept { return launcher_; }
  [[nodiscard]] watcher& watching() noexcept { return watcher_; }
  [[nodiscard]] pinned_words& words() noexcept { return words_; }
  /// A stream and an event of the device's own, to ask for its errors: to ask a stream
  /// that is being captured would end the capture. Set once, before the device is handed
  /// out.
  void set_probe(cudaStream_t idle, cudaEvent_t mark) noexcept {
    probe_ = idle;
    probe_mark_ = mark;
  }

  /// While it lives, a communicator is being made or freed. It is overdue after a time,
  /// and then counts as stuck until it ends.
  class lifecycle {
   public:
    lifecycle(device& on, duration allowed);
    lifecycle(const lifecycle&) = delete;
    lifecycle& operator=(const lifecycle&) = delete;
    ~lifecycle();
    /// From now on it is to end within that time, if not earlier.
    void hurry(duration allowed);

   private:
    device& on_;
    std::list<time_point>::iterator entry_;
  };
  /// Returns whether one is being made or freed: calls to the driver may wait for long
  /// then.
  [[nodiscard]] bool has_lifecycle() const noexcept { return lifecycles_count_ != 0; }
  [[nodiscard]] int stuck() const;
  /// Waits until nothing is being made or freed that is not overdue; at most until
  /// `latest`.
  void await_lifecycles(time_point latest) const;

  /// Aborts communicators on a helper thread; those that break at about the same time
  /// together, as one may wait for another's kernel. `freed` runs there. What is not
  /// taken for want of a thread stays, and counts as stuck.
  void abort(std::vector<ncclComm_t> communicators, std::function<void()> freed);

  /// Remembers the first of the errors after which the device is of no use to the
  /// process.
  void note_failed(cudaError_t error) noexcept;
  [[nodiscard]] std::optional<cudaError_t> failed() const noexcept;
  /// Returns the same, and has the watcher ask, so that a later call tells. Where
  /// completion is told by words, nothing else finds that the device has failed. It is
  /// cheap, not free: every millisecond, say. Thread: any; does not block.
  [[nodiscard]] std::optional<cudaError_t> check() noexcept;
  /// Returns how long the driver has answered the watcher without delay; zero while
  /// another call holds one of its locks. Thread: any.
  [[nodiscard]] duration driver_is_free_for(time_point now) const noexcept;
  /// Asks now; may block. Thread: any that has the device set.
  void ask_for_errors() noexcept;
  /// Frees what asking needs, when the process is to have no further use for it. May
  /// block.
  void free_probe() noexcept;
  /// Notes that a communicator's root waits for members, or no longer, as all have
  /// come.
  void note_root(int more) noexcept { roots_.fetch_add(more, std::memory_order_relaxed); }
  [[nodiscard]] int roots() const noexcept {
    return roots_.load(std::memory_order_relaxed);
  }
  /// Counts one that will never be freed.
  void note_leaked() noexcept { leaked_.fetch_add(1, std::memory_order_relaxed); }

 private:
  struct broken {
    void abort() const;

    std::vector<ncclComm_t> communicators;
    std::function<void()> freed;
  };

  watcher::progress ask() noexcept override;
  void abort_gathered();
  void abort_side_by_side(std::vector<broken> together);

  const int ordinal_;
  const std::string identity_;
  const int multiprocessors_;
  const int capability_;
  const std::shared_ptr<helper_threads> helpers_;
  launcher launcher_;
  watcher watcher_;
  pinned_words words_;
  std::mutex probing_;
  cudaStream_t probe_ = nullptr;
  cudaEvent_t probe_mark_ = nullptr;
  std::atomic<bool> is_asked_{false};
  std::atomic<std::int64_t> asked_at_{0};    ///< zero if nothing is asked just now
  std::atomic<std::int64_t> held_until_{0};  ///< of the last answer that came late
  std::atomic<int> reserved_{0};
  std::atomic<int> failed_{cudaSuccess};
  std::atomic<int> leaked_{0};
  std::atomic<int> roots_{0};

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::list<time_point> lifecycles_;
  std::atomic<int> lifecycles_count_{0};
  std::vector<broken> gathered_;
};

}  // namespace manyworlds::inline v0::detail::nccl
