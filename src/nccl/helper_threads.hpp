// Helper threads: for what blocks, in CUDA or in NCCL, perhaps for ever.
#pragma once

#include <functional>
#include <memory>

#include "manyworlds/coro/timer_queue.hpp"

namespace manyworlds::inline v0::nccl {

/// Started on demand, so that no job waits for another; they end when they have had
/// nothing to do for a second. Thread-safe, but for `end`.
class helper_threads {
 public:
  using job = std::function<void()>;

  helper_threads();
  helper_threads(const helper_threads&) = delete;
  helper_threads& operator=(const helper_threads&) = delete;
  /// Ends them at once.
  ~helper_threads();

  /// The job holds what it uses, since nobody waits for it. It must not throw. False: it
  /// was not taken, as there is no thread to be had, or they have ended.
  [[nodiscard]] bool post(job run);

  /// Takes no more jobs, waits for those that were taken, and joins the threads. Who has
  /// not ended in time is left behind with what its job holds, and ends when it returns.
  /// Not on a helper thread.
  void end(duration patience);

  /// Threads that were left behind and have not returned.
  [[nodiscard]] int left_behind() const;
  /// Threads that there are now, for dumps.
  [[nodiscard]] int running() const;

 private:
  class crew;
  std::shared_ptr<crew> crew_;
};

}  // namespace manyworlds::inline v0::nccl
