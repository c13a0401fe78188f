#include "launch/restart_budget.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "duration_text.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0 {

std::string_view name_of(restart_when when) noexcept {
  switch (when) {
    case restart_when::never:
      return "never";
    case restart_when::on_failure:
      return "on_failure";
    case restart_when::always:
      return "always";
  }
  return "?";
}

namespace detail {

/// Longer ones are as good as none, and sums of times have an end.
constexpr duration longest_restart_pause = std::chrono::hours(24 * 365);

restart_budget::restart_budget(const restart_policy& policy)
    : policy_(policy), pause_(std::min(policy.shortest, longest_restart_pause)) {
  if (policy.shortest <= duration::zero() || policy.window < duration::zero())
    throw std::invalid_argument(
        "a restart policy has pauses above zero and no negative window");
  if (policy.longest < policy.shortest)
    throw std::invalid_argument(
        "the longest pause of a restart policy is below its shortest");
  policy_.shortest = pause_;
  policy_.longest = std::min(policy.longest, longest_restart_pause);
}

std::optional<duration> restart_budget::next(const exit_reason& end, time_point now) {
  is_used_up_ = false;
  if (policy_.when == restart_when::never || end.kind == exit_kind::stopped) return {};
  if (policy_.when == restart_when::on_failure && end.is_success()) return {};
  if (policy_.most > 0) {
    const auto is_old = [&](time_point t) {
      return policy_.window > duration::zero() && now - t >= policy_.window;
    };
    while (!starts_.empty() && is_old(starts_.front())) starts_.pop_front();
    MW_ASSERT(starts_.size() <= policy_.most, "no more starts than the policy allows");
    is_used_up_ = starts_.size() == policy_.most;
    if (is_used_up_) return {};
    starts_.push_back(now);
  }
  if (end.ran_for >= policy_.longest) pause_ = policy_.shortest;
  const duration pause = pause_;
  pause_ = std::min(policy_.longest, 2 * pause_);
  return pause;
}

std::string restart_budget::why_not() const {
  if (!is_used_up_) return {};
  if (policy_.window == duration::zero())
    return fmt::format("; it is not started again after {} restarts", policy_.most);
  return fmt::format("; it is not started again after {} restarts within {}",
                     policy_.most, duration_text(policy_.window));
}

}  // namespace detail

}  // namespace manyworlds::inline v0
