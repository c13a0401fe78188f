// How the code that runs on shared memory touches it: words that both processes see.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace manyworlds::inline v0::shm {

/// Lines, not words, travel between cores.
inline constexpr std::size_t line_size = 64;

/// The memory policy of this folder's shared structures: what a word and a fence are.
/// Tests put a model of memory in its place and run the same code through all
/// interleavings.
///
/// All orders in these structures are relaxed, acquire, release, or a full fence: what
/// the model knows.
struct hardware_memory {
  template <class T>
  using atomic = std::atomic<T>;

  // Orders earlier stores before later loads too, which release and acquire do not.
  static void full_fence() noexcept {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
};

// A lock would lie in one process only.
static_assert(std::atomic<std::uint8_t>::is_always_lock_free &&
              std::atomic<std::uint32_t>::is_always_lock_free &&
              std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(sizeof(std::atomic<std::uint8_t>) == 1 &&
              sizeof(std::atomic<std::uint32_t>) == 4 &&
              sizeof(std::atomic<std::uint64_t>) == 8);

}  // namespace manyworlds::inline v0::shm
