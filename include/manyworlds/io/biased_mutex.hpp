// Biased mutex: one that a single thread takes all the time, and others hardly ever.
#pragma once

#include <atomic>
#include <mutex>

#include "manyworlds/config.hpp"

namespace manyworlds::inline v0 {

/// The owner is the thread that its user says it is; no other may, while it lives,
/// use `owner_lock`. It pays for two plain stores and a load (2 ns; an uncontended
/// std::mutex costs 15 to 20); everybody else for a system call that makes the owner's
/// processor look (asymmetric Dekker: Dice, Huang, Yang, "Asymmetric Dekker
/// Synchronization", 2001; membarrier(2)). Where the kernel refuses that call the owner
/// pays for a fence.
///
/// Either side holds it briefly. Not recursive.
class biased_mutex {
 public:
  biased_mutex() noexcept;
  biased_mutex(const biased_mutex&) = delete;
  biased_mutex& operator=(const biased_mutex&) = delete;

  /// The owner's side: held until its destruction.
  class [[nodiscard]] owner_lock {
   public:
    explicit owner_lock(biased_mutex& m) noexcept : mutex_(m) {
      mutex_.hold();
      while (mutex_.wanted_.load(std::memory_order_acquire))
        [[unlikely]] mutex_.step_back();
    }
    owner_lock(const owner_lock&) = delete;
    owner_lock& operator=(const owner_lock&) = delete;
    // Release: pairs with the acquire in the others' lock().
    ~owner_lock() { mutex_.held_.store(false, std::memory_order_release); }

   private:
    biased_mutex& mutex_;
  };

  /// Every other thread's side, for std::lock_guard.
  void lock() noexcept;
  void unlock() noexcept;

 private:
  void hold() noexcept {
    held_.store(true, std::memory_order_relaxed);
    // Of this store and the others' to `wanted_`, followed by a look at the other's word,
    // at least one is seen: the others' barrier stands on both sides.
    if (others_fence_) {
      std::atomic_signal_fence(std::memory_order_seq_cst);
    } else {
      std::atomic_thread_fence(std::memory_order_seq_cst);
    }
  }
  void step_back() noexcept;

  const bool others_fence_;
  std::atomic<bool> held_{false};
  std::atomic<bool> wanted_{false};
  std::mutex others_;
};

}  // namespace manyworlds::inline v0
