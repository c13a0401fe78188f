// Stuck call: for how long a thread has been waiting in a call, or computing there.
#pragma once

#include <sys/types.h>

#include <optional>

#include "manyworlds/time.hpp"

namespace manyworlds::inline v0::detail::nccl {

/// Watches a thread of this process that is inside a call. Time in which it was ready
/// to run and had no CPU does not count: on a busy machine a call that is about to
/// return looks stuck otherwise. Where the kernel tells neither, all time counts.
class stuck_call {
 public:
  explicit stuck_call(pid_t thread) noexcept;

  /// Returns how long the call has lasted since this was constructed. Called every few
  /// milliseconds: what the thread does now is taken for what it has done since the
  /// call before.
  [[nodiscard]] duration lasted() noexcept;

 private:
  const pid_t thread_;
  time_point seen_;
  std::optional<duration> used_;  ///< of a CPU
  duration counted_{0};
};

}  // namespace manyworlds::inline v0::detail::nccl
