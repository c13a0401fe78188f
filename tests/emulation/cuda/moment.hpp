// A point in a stream's work: it comes once, and can be waited for.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

namespace emulated {

class moment {
 public:
  using clock = std::chrono::steady_clock;

  void come() { come(true); }
  // It will not be reached: what waits for it is woken.
  void drop() { come(false); }

  bool was_reached() const {
    std::lock_guard hold(mutex_);
    return has_come() && is_reached_;
  }

  bool has_come() const { return has_come_.load(std::memory_order_acquire); }

  void wait() const {
    if (has_come()) return;
    std::unique_lock hold(mutex_);
    came_.wait(hold, [&] { return has_come(); });
  }

  // Once it has come.
  clock::time_point when() const {
    std::lock_guard hold(mutex_);
    return when_;
  }

 private:
  void come(bool reached) {
    std::lock_guard hold(mutex_);
    when_ = clock::now();
    is_reached_ = reached;
    // Release: who sees it come sees what the stream did before.
    has_come_.store(true, std::memory_order_release);
    came_.notify_all();
  }

  mutable std::mutex mutex_;
  mutable std::condition_variable came_;
  std::atomic<bool> has_come_ = false;
  bool is_reached_ = false;
  clock::time_point when_;
};

using moment_ptr = std::shared_ptr<moment>;

}  // namespace emulated
