// Process pulse: whether a process has run, as the kernel sees it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "manyworlds/time.hpp"

namespace manyworlds::inline v0::detail {

/// Looks at the first thread of a process again and again. A slow disk lets it run now
/// and then; a dead one does not.
class process_pulse {
 public:
  /// Looks once. What was seen before of another process is forgotten.
  void look(pid_t pid, time_point now);
  /// Says that what stood still until now says nothing, as after a freeze of this
  /// machine.
  void forget(time_point now) noexcept { since_ = now; }

  /// Returns the letter of /proc/PID/stat; '?' if there is no such process.
  [[nodiscard]] char state() const noexcept { return state_; }
  /// Returns for how long it has not run and was in that state at each look.
  [[nodiscard]] duration in_state(time_point now) const noexcept { return now - since_; }
  /// Returns when it was last seen to wait for a disk, and to go on.
  [[nodiscard]] std::optional<time_point> last_at_disk() const noexcept {
    return last_at_disk_;
  }

 private:
  pid_t pid_ = 0;
  char state_ = '?';
  std::uint64_t switches_ = 0;  ///< to and from other threads
  time_point since_{};
  std::optional<time_point> last_at_disk_;
};

}  // namespace manyworlds::inline v0::detail
