// Watcher: the one thread that asks CUDA, again and again, what reactors want to know.
#pragma once

#include <memory>
#include <optional>

#include "manyworlds/coro/timer_queue.hpp"

namespace manyworlds::inline v0::nccl {

class helper_threads;

/// Calls to CUDA may wait for one of the driver's locks, and long: a thread of the
/// application that frees memory holds one until the device is idle, which it is not
/// while a kernel waits for a dead peer. So one thread asks, and reactors read what it
/// found.
class watcher {
 public:
  enum class progress : unsigned char {
    not_yet,  ///< is asked again, more seldom the longer it lasts
    goes_on,  ///< it got somewhere, and more is to come: asked again soon
    over,     ///< not asked again, unless it is added again
  };

  /// Kept alive while it is queued or being asked: its owner may be gone when CUDA
  /// returns.
  class question {
   public:
    /// On the watcher's thread; may block.
    virtual progress ask() noexcept = 0;

   protected:
    question() = default;
    ~question() = default;

   private:
    friend class watcher;
    std::shared_ptr<question> itself_;
    question* next_ = nullptr;
    time_point since_{};
    time_point due_{};
  };

  /// A device's: its thread has that device. Without one the thread has none.
  explicit watcher(std::optional<int> device = {});
  watcher(const watcher&) = delete;
  watcher& operator=(const watcher&) = delete;
  ~watcher();

  /// Starts the thread ("mw-watch-<device>", "mw-watch") unless it runs; any thread.
  /// False if it cannot be started.
  [[nodiscard]] bool start(helper_threads& helpers);
  /// Any thread; never waits for a call to CUDA. Not one that was added already, unless
  /// its last answer was `over`.
  void add(std::shared_ptr<question> asked) noexcept;

  /// The thread ends when CUDA has returned, and asks nothing more. Does not wait.
  void end() noexcept;

 private:
  class round;
  std::shared_ptr<round> round_;
};

}  // namespace manyworlds::inline v0::nccl
