// Watcher: the one thread that asks CUDA, again and again, what reactors want to know.
#pragma once

#include <memory>
#include <optional>

#include "manyworlds/coro/timer_queue.hpp"

namespace manyworlds::inline v0::nccl {

class helper_threads;

/// A question to CUDA may wait for one of the driver's locks, for as long as somebody
/// else holds it: a thread of the application that frees memory holds one until the
/// device is idle, and a kernel that waits for a dead peer never is. So no reactor asks;
/// they read what is written here.
class watcher {
 public:
  enum class answer : unsigned char {
    not_yet,  ///< is asked again, more seldom the longer it lasts
    goes_on,  ///< it got somewhere, and more is to come: asked again soon
    over,     ///< not asked again, unless it is added again
  };

  /// Held while it waits to be asked and while it is: who added it may be long gone when
  /// CUDA returns.
  class question {
   public:
    /// On the watcher's thread; may block.
    virtual answer ask() noexcept = 0;

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
  /// False if there is none to be had.
  [[nodiscard]] bool start(helper_threads& helpers);
  /// Any thread; waits for nobody who is in CUDA. Not one that is there already.
  void add(std::shared_ptr<question> asked) noexcept;

  /// The thread ends when CUDA has returned, and asks nothing more. Does not wait.
  void end() noexcept;

 private:
  class round;
  std::shared_ptr<round> round_;
};

}  // namespace manyworlds::inline v0::nccl
