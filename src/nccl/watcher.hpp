// Watcher: the one thread that asks CUDA, again and again, what reactors want to know.
#pragma once

#include <memory>
#include <optional>

#include "manyworlds/time.hpp"

namespace manyworlds::inline v0::detail::nccl {

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

  /// It is kept alive while it is queued or being asked: its owner may be gone when
  /// CUDA returns.
  class question {
   public:
    /// Asks CUDA; may block. Thread: the watcher's.
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

  /// Makes a device's watcher: its thread has that device. Without one the thread has
  /// none.
  explicit watcher(std::optional<int> device = {});
  watcher(const watcher&) = delete;
  watcher& operator=(const watcher&) = delete;
  ~watcher();

  /// Starts the thread ("mw-watch-<device>", "mw-watch") unless it runs. Returns false
  /// if it cannot be started. Thread: any.
  [[nodiscard]] bool start(helper_threads& helpers);
  /// Adds a question; never waits for a call to CUDA. Precondition: it was not added
  /// before, or its last answer was `over`. Thread: any.
  void add(std::shared_ptr<question> asked) noexcept;

  /// Ends the thread when CUDA has returned; asks nothing further. Does not wait.
  void end() noexcept;

 private:
  class round;
  std::shared_ptr<round> round_;
};

}  // namespace manyworlds::inline v0::detail::nccl
