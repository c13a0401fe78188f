// Biased mutex: a mutex that one thread takes all the time, and others hardly ever.
#pragma once

#include <atomic>
#include <mutex>

#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0::detail {

/// The user decides which thread is the owner; no other thread may use `owner_lock` while
/// the mutex lives. The owner pays for two plain stores and a load (2 ns; an uncontended
/// std::mutex costs 15 to 20). Every other thread pays for a system call that makes the
/// owner's processor look (asymmetric Dekker: Dice, Huang, Yang, "Asymmetric Dekker
/// Synchronization", 2001; membarrier(2)). Where the kernel refuses that call the owner
/// pays for a fence.
///
/// Either side holds it briefly. It is not recursive.
class biased_mutex {
 public:
  biased_mutex() noexcept;
  biased_mutex(const biased_mutex&) = delete;
  biased_mutex& operator=(const biased_mutex&) = delete;

  /// The owner's side. The mutex is held until this object is destroyed.
  class [[nodiscard]] owner_lock {
   public:
    explicit owner_lock(biased_mutex& m) noexcept : mutex_(m) {
      MW_ASSERT(!mutex_.held_.load(std::memory_order_relaxed),
                "the owner takes the mutex once at a time");
      mutex_.hold();
      while (mutex_.wanted_.load(std::memory_order_acquire))
        [[unlikely]] mutex_.step_back();
    }
    owner_lock(const owner_lock&) = delete;
    owner_lock& operator=(const owner_lock&) = delete;
    // Release: pairs with the acquire in the other threads' lock().
    ~owner_lock() {
      MW_ASSERT(mutex_.held_.load(std::memory_order_relaxed),
                "the owner releases what it holds");
      mutex_.held_.store(false, std::memory_order_release);
    }

   private:
    biased_mutex& mutex_;
  };

  /// The side of every other thread, for std::lock_guard.
  void lock() noexcept;
  void unlock() noexcept;

 private:
  void hold() noexcept {
    held_.store(true, std::memory_order_relaxed);
    // Each side stores its word and then loads the other's. At least one of the two
    // stores is seen, because the other threads' barrier orders both sides.
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

}  // namespace manyworlds::inline v0::detail
