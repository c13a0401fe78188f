// Launcher: the one thread that calls NCCL for the worlds of one device.
#pragma once

#include <cstdint>
#include <memory>

#include "manyworlds/coro/work.hpp"

namespace manyworlds::inline v0::nccl {

class helper_threads;

/// Runs work first-in first-out on a thread of its own, whose device is set and which
/// disturbs no capture elsewhere. It looks for more for a while before it sleeps. What is
/// posted must not throw, and must hold what it uses: it may run after its world has
/// stopped waiting for it.
class launcher {
 public:
  explicit launcher(int device);
  launcher(const launcher&) = delete;
  launcher& operator=(const launcher&) = delete;
  ~launcher();

  /// Starts the thread ("mw-launch-<device>") unless it runs; on any thread, before the
  /// first `post`. False if there is none to be had.
  [[nodiscard]] bool start(helper_threads& helpers);
  /// Any thread. The work may be gone when it has run.
  void post(work& w) noexcept;

  /// The number of the piece of work that runs now, from 1; 0 if none does. Any thread.
  [[nodiscard]] std::uint64_t running() const noexcept;
  /// If that one still runs, it is stuck: another thread goes on with what is behind it,
  /// and its own ends when it returns. Any thread. False if it does not run any more, or
  /// no thread can be had.
  bool replace(std::uint64_t stuck, helper_threads& helpers);

  /// What was posted before is run, if nothing is stuck; then the thread ends. Does not
  /// wait. Nothing is posted afterwards.
  void end() noexcept;

 private:
  class belt;
  std::shared_ptr<belt> belt_;
};

}  // namespace manyworlds::inline v0::nccl
