// Helper threads: for what blocks, in CUDA or in NCCL, perhaps without end.
#pragma once

#include <functional>
#include <memory>

#include "manyworlds/time.hpp"

namespace manyworlds::inline v0::detail::nccl {

/// They are started on demand, so that no job waits for another. They end when they
/// have had nothing to do for a second. Thread-safe, except for `end`.
class helper_threads {
 public:
  using job = std::function<void()>;

  helper_threads();
  helper_threads(const helper_threads&) = delete;
  helper_threads& operator=(const helper_threads&) = delete;
  /// Ends them at once.
  ~helper_threads();

  /// Runs the job on one of them. The job holds what it uses, since nothing waits for
  /// it, and must not throw. Returns false if it was not taken, as no thread is
  /// available or they have ended.
  [[nodiscard]] bool post(job run);

  /// Takes no more jobs, waits for those that were taken, and joins the threads. A
  /// thread still running at the deadline is left behind with what its job holds, and
  /// ends when that returns. Thread: none of the helpers.
  void end(duration patience);

  /// Returns the number of threads that were left behind and have not returned.
  [[nodiscard]] int left_behind() const;
  /// Returns the number of threads now, for dumps.
  [[nodiscard]] int running() const;

 private:
  class crew;
  std::shared_ptr<crew> crew_;
};

}  // namespace manyworlds::inline v0::detail::nccl
