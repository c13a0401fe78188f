#include "io/biased_mutex.hpp"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <thread>

namespace manyworlds::inline v0::detail {

namespace {

long membarrier(int command) noexcept {
  return ::syscall(SYS_membarrier, command, 0U, 0);
}

}  // namespace

biased_mutex::biased_mutex() noexcept
    : others_fence_(membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0) {}

void biased_mutex::lock() noexcept {
  others_.lock();
  MW_ASSERT(!wanted_.load(std::memory_order_relaxed),
            "one of the other threads wants the mutex at a time");
  wanted_.store(true, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (others_fence_) membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
  while (held_.load(std::memory_order_acquire)) std::this_thread::yield();
}

void biased_mutex::unlock() noexcept {
  MW_ASSERT(wanted_.load(std::memory_order_relaxed),
            "another thread releases what it has locked");
  // Release: pairs with the acquire in owner_lock's constructor.
  wanted_.store(false, std::memory_order_release);
  others_.unlock();
}

// Lets the other threads go first: they are few, and each holds the mutex once.
void biased_mutex::step_back() noexcept {
  MW_ASSERT(held_.load(std::memory_order_relaxed), "only the owner steps back");
  held_.store(false, std::memory_order_release);
  { const std::lock_guard others(others_); }
  hold();
}

}  // namespace manyworlds::inline v0::detail
