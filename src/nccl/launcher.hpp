// Launcher: the one thread that calls NCCL for the worlds of one device.
#pragma once

#include <cstdint>
#include <memory>

#include "manyworlds/detail/work.hpp"

namespace manyworlds::inline v0::detail::nccl {

class helper_threads;

/// Runs work first-in first-out on its own thread, which has the device set and
/// disturbs no capture elsewhere. The thread looks for more for a while before it
/// sleeps. What is posted must not throw, and must hold what it uses: it may run after
/// its world has stopped waiting for it.
class launcher {
 public:
  explicit launcher(int device);
  launcher(const launcher&) = delete;
  launcher& operator=(const launcher&) = delete;
  ~launcher();

  /// Starts the thread ("mw-launch-<device>") unless it runs. Called before the first
  /// `post`. Returns false if no thread is available. Thread: any.
  [[nodiscard]] bool start(helper_threads& helpers);
  /// Queues the work, which may be gone when it has run. Thread: any.
  void post(work& w) noexcept;

  /// Returns the number of the piece of work that runs now, from 1; 0 if none does.
  /// Thread: any.
  [[nodiscard]] std::uint64_t running() const noexcept;
  /// If that one still runs, it is stuck: another thread goes on with what is behind
  /// it, and its own ends when it returns. Returns false if it no longer runs, or no
  /// thread is available. Thread: any.
  bool replace(std::uint64_t stuck, helper_threads& helpers);

  /// Ends the thread after what was posted before has run, if nothing is stuck. Does
  /// not wait. Nothing is posted afterwards.
  void end() noexcept;

 private:
  class belt;
  std::shared_ptr<belt> belt_;
};

}  // namespace manyworlds::inline v0::detail::nccl
