// Restart budget: decides by a policy whether and when a process starts again.
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "manyworlds/launch/exit_reason.hpp"
#include "manyworlds/launch/restart_policy.hpp"

namespace manyworlds::inline v0::detail {

class restart_budget {
 public:
  /// Errors: std::invalid_argument for a policy with a negative time, or with pauses of
  /// which the longest is the shorter one.
  explicit restart_budget(const restart_policy& policy);

  /// Returns the pause before the next start, and counts that start; nothing if there is
  /// none.
  [[nodiscard]] std::optional<duration> next(const exit_reason& end, time_point now);
  /// Says why the last `next` gave nothing, as words behind the reason.
  [[nodiscard]] std::string why_not() const;

 private:
  restart_policy policy_;
  duration pause_;
  std::deque<time_point> starts_;
  bool is_used_up_ = false;
};

}  // namespace manyworlds::inline v0::detail
