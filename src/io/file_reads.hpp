// File reads: reads of files by helper threads, for engines that wait for readiness.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>

#include "io/descriptor.hpp"
#include "io/io_request.hpp"
#include "io/request_list.hpp"

namespace manyworlds::inline v0::detail {

/// The requests `read_at` of one engine. A file is always ready, and a read of it blocks
/// until its disk has answered. Threads are started for reads that find none idle, and
/// end with this object.
///
/// Thread: the engine's, for all members.
class file_reads {
 public:
  /// `notices` gets one when a read has ended, so that the engine's wait ends.
  explicit file_reads(event_counter& notices) noexcept : notices_(notices) {}
  file_reads(const file_reads&) = delete;
  file_reads& operator=(const file_reads&) = delete;
  /// Waits for the reads that a thread has begun. The others are not looked at: they may
  /// be gone with their owners.
  ~file_reads();

  /// Starts a read. Without any thread it ends with the errno for which there is none.
  void submit(io_request& r) noexcept;
  /// Ends a read that no thread has begun. Any other ends with what it achieves, since
  /// the kernel writes to its buffers until then.
  void cancel(io_request& r) noexcept;
  [[nodiscard]] bool has_ended() const noexcept {
    // Acquire: pairs with the release in note_end(), so that its request is found.
    return has_ended_.load(std::memory_order_acquire);
  }
  /// Takes the oldest that has ended, with its result. Precondition: `has_ended`.
  [[nodiscard]] io_request* pop_ended() noexcept;

 private:
  /// A disk serves several at once; more threads would only wait side by side.
  static constexpr std::size_t most_threads = 4;
  /// Where a request is, as its token says. Guarded by the mutex.
  enum place : std::uint64_t { waiting, begun, ended };

  [[nodiscard]] int start_thread() noexcept;
  void run() noexcept;
  void note_end(io_request& r, io_result result) noexcept;

  event_counter& notices_;
  std::mutex mutex_;
  std::condition_variable changed_;
  request_list waiting_;
  std::size_t waiting_count_ = 0;
  std::size_t idle_ = 0;
  request_list ended_;
  std::atomic<bool> has_ended_{false};
  bool is_over_ = false;
  std::size_t thread_count_ = 0;
  // The threads come last: they use the other members from their start.
  std::array<std::thread, most_threads> threads_;
};

}  // namespace manyworlds::inline v0::detail
