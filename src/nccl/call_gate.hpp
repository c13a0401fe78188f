// Call gate: between the thread that calls NCCL for a communicator and the one that
// takes it away.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>

#include "manyworlds/failure.hpp"
#include "manyworlds/time.hpp"

namespace manyworlds::inline v0::detail::nccl {

/// The communicator and the threads that launch share it. It outlives the communicator
/// as long as one of them may still call `leave`.
class call_gate {
 public:
  /// Called before a call on the communicator, or a run of them; by one thread at a
  /// time. Returns false if it may no longer be called; then `leave` is not called
  /// either.
  [[nodiscard]] bool enter() noexcept {
    // Sequentially consistent, as are `close` and `is_inside`: either we see that it is
    // closed, or the thread that has closed it sees us inside. Not by raising and
    // taking back: the mark may be another thread's, which is stuck inside and was
    // replaced.
    std::uint8_t seen = state_.load(std::memory_order_seq_cst);
    do {
      if (seen != 0) return false;
    } while (!state_.compare_exchange_weak(seen, inside, std::memory_order_seq_cst));
    static thread_local const pid_t self = ::gettid();
    thread_.store(self, std::memory_order_relaxed);
    entered_.store(std::chrono::steady_clock::now().time_since_epoch().count(),
                   std::memory_order_relaxed);
    return true;
  }
  /// Notes that the call may connect peers, as the first operation of its kind and size
  /// does. Thread: the one inside.
  void note_first() noexcept { is_first_.store(true, std::memory_order_relaxed); }
  /// Returns whether the present call is such a first one. Thread: any.
  [[nodiscard]] bool is_first() const noexcept {
    return is_first_.load(std::memory_order_relaxed);
  }
  void leave() noexcept {
    is_first_.store(false, std::memory_order_relaxed);
    entered_.store(0, std::memory_order_relaxed);
    // Release: pairs with `is_inside`; the thread that frees the communicator then
    // comes after us.
    state_.fetch_and(static_cast<std::uint8_t>(~inside), std::memory_order_release);
  }

  /// Returns whether an operation of this kind, and of this power of two of bytes, is
  /// the first. NCCL chooses its algorithm by both, and connects the peers for it at
  /// the first use, within the call. Thread: the one inside.
  [[nodiscard]] bool is_new(operation_kind kind, std::uint64_t bytes) noexcept {
    auto& seen = sizes_[static_cast<std::size_t>(kind)];
    const std::uint64_t size = std::uint64_t{1}
                               << std::min(static_cast<int>(std::bit_width(bytes)), 63);
    const bool found = (seen & size) == 0;
    seen |= size;
    return found;
  }

  /// Returns the thread that is inside, or was last. Thread: any.
  [[nodiscard]] pid_t thread() const noexcept {
    return thread_.load(std::memory_order_relaxed);
  }
  /// Returns how long the present call has lasted; zero if there is none. Thread: any.
  [[nodiscard]] duration blocked_for(time_point now) const noexcept {
    if (!is_inside()) return duration::zero();
    const std::int64_t at = entered_.load(std::memory_order_relaxed);
    const time_point entered{duration{at}};
    // It was entered this moment, and the time is not noted yet.
    return at != 0 && now > entered ? now - entered : duration::zero();
  }

  /// Keeps all threads from entering from now on. Thread: any.
  void close() noexcept { state_.fetch_or(closed, std::memory_order_seq_cst); }
  [[nodiscard]] bool is_inside() const noexcept {
    return (state_.load(std::memory_order_seq_cst) & inside) != 0;
  }

 private:
  static constexpr std::uint8_t inside = 1;
  static constexpr std::uint8_t closed = 2;
  static constexpr std::size_t kinds = static_cast<std::size_t>(operation_kind::call) + 1;

  std::array<std::uint64_t, kinds> sizes_{};
  std::atomic<std::uint8_t> state_{0};
  std::atomic<std::int64_t> entered_{0};
  std::atomic<pid_t> thread_{0};
  std::atomic<bool> is_first_{false};
};

}  // namespace manyworlds::inline v0::detail::nccl
