// Async result: what a helper thread found out, on its way to a reactor that may have
// stopped waiting for it.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "io/reactor.hpp"
#include "manyworlds/detail/work.hpp"

namespace manyworlds::inline v0::detail::nccl {

/// The side that asks, on the reactor's thread, and the side that answers, on any
/// other, share it. The asking side drops it before the reactor ends, or before what
/// `heard` uses does.
class async_result final : private work,
                           public std::enable_shared_from_this<async_result> {
 public:
  async_result(reactor& home, std::function<void()> heard)
      : work([](work& w) noexcept { static_cast<async_result&>(w).arrive(); }),
        home_(&home),
        heard_(std::move(heard)) {}

  /// Makes `heard` run on the reactor's thread, unless it is dropped; what was written
  /// before is seen there. Called at most once. Thread: any.
  void give() noexcept {
    // Under the lock, so that the side that asks cannot drop it and end the reactor
    // meanwhile.
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
    const std::shared_ptr<async_result> alive = std::move(itself_);
    if (auto heard = std::exchange(heard_, nullptr)) heard();
  }

  std::mutex mutex_;
  reactor* home_;
  std::function<void()> heard_;
  std::shared_ptr<async_result> itself_;
};

}  // namespace manyworlds::inline v0::detail::nccl
