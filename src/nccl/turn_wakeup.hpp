// Turn wake-up: wakes the reactor of a world that may have its turn.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "io/reactor.hpp"
#include "manyworlds/detail/work.hpp"

namespace manyworlds::inline v0::detail::nccl {

/// Any thread that launches or gives places back calls `wake`, any number of times:
/// `heard` runs on the reactor's thread at least once after the last `wake`. It is
/// dropped there before the reactor ends, or before what `heard` uses does.
class turn_wakeup final : private work, public std::enable_shared_from_this<turn_wakeup> {
 public:
  turn_wakeup(reactor& home, std::function<void()> heard)
      : work([](work& w) noexcept { static_cast<turn_wakeup&>(w).arrive(); }),
        home_(&home),
        heard_(std::move(heard)) {}

  /// Wakes the reactor; only posts. Thread: any, under any lock.
  void wake() noexcept {
    // Acquire and release: a `wake` after `arrive` has cleared it posts again, and what
    // was changed before a `wake` that posts nothing is seen by the one on its way.
    if (is_pending_.exchange(true, std::memory_order_acq_rel)) return;
    // Under the lock, so that the reactor does not end meanwhile.
    const std::lock_guard lock(mutex_);
    if (!home_) return;
    itself_ = shared_from_this();
    if (!home_->try_post(*this)) itself_.reset();
  }

  /// Ensures that `heard` does not run after this. Thread: the reactor's.
  void drop() noexcept {
    heard_ = nullptr;
    const std::lock_guard lock(mutex_);
    home_ = nullptr;
  }

 private:
  void arrive() noexcept {
    const std::shared_ptr<turn_wakeup> alive = std::move(itself_);
    is_pending_.exchange(false, std::memory_order_acq_rel);
    if (heard_) heard_();
  }

  std::mutex mutex_;
  reactor* home_;
  std::function<void()> heard_;
  std::shared_ptr<turn_wakeup> itself_;
  std::atomic<bool> is_pending_{false};
};

}  // namespace manyworlds::inline v0::detail::nccl
