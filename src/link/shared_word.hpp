// Shared word: how code accesses the words that two processes share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace manyworlds::inline v0::detail::shm {

/// Cache lines, not words, move between cores.
inline constexpr std::size_t line_size = 64;

/// The memory policy of this folder's shared structures: what a word and a fence are.
/// Tests replace it by a model of memory and run the same code through all
/// interleavings.
///
/// All orders in these structures are relaxed, acquire, release, or a full fence, which
/// the model knows.
struct hardware_memory {
  template <class T>
  using atomic = std::atomic<T>;

  // Also orders earlier stores before later loads, which release and acquire do not.
  static void full_fence() noexcept {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
};

// An atomic with a lock would have it in one process only.
static_assert(std::atomic<std::uint8_t>::is_always_lock_free &&
              std::atomic<std::uint32_t>::is_always_lock_free &&
              std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(sizeof(std::atomic<std::uint8_t>) == 1 &&
              sizeof(std::atomic<std::uint32_t>) == 4 &&
              sizeof(std::atomic<std::uint64_t>) == 8);

}  // namespace manyworlds::inline v0::detail::shm
