// Answer: what a helper thread found out, on its way to a reactor that may have stopped
// waiting for it.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "manyworlds/coro/work.hpp"
#include "manyworlds/io/reactor.hpp"

namespace manyworlds::inline v0::nccl {

/// Shared by who asks, on the reactor's thread, and by who answers, on any other. Who
/// asks drops it before the reactor ends, or before what `heard` uses does.
class answer final : private work, public std::enable_shared_from_this<answer> {
 public:
  answer(reactor& home, std::function<void()> heard)
      : work([](work& w) noexcept { static_cast<answer&>(w).arrive(); }),
        home_(&home),
        heard_(std::move(heard)) {}

  /// Any thread, at most once: `heard` runs on the reactor's thread, unless it is
  /// dropped. What was written before is seen there.
  void give() noexcept {
    // Under the lock, so that nobody who has dropped it ends the reactor meanwhile.
    const std::lock_guard lock(mutex_);
    if (!home_) return;
    itself_ = shared_from_this();
    if (!home_->try_post(*this)) itself_.reset();
  }

  /// On the reactor's thread: `heard` does not run any more.
  void drop() noexcept {
    heard_ = nullptr;
    const std::lock_guard lock(mutex_);
    home_ = nullptr;
  }

 private:
  void arrive() noexcept {
    const std::shared_ptr<answer> alive = std::move(itself_);
    if (auto heard = std::exchange(heard_, nullptr)) heard();
  }

  std::mutex mutex_;
  reactor* home_;
  std::function<void()> heard_;
  std::shared_ptr<answer> itself_;
};

}  // namespace manyworlds::inline v0::nccl
