// Process list: what /proc tells of the processes of this machine.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace manyworlds::inline v0::detail {

struct listed_process {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t session = 0;
  char state = '?';
  /// In ticks since the machine was started. With the number it names one process.
  std::uint64_t started = 0;

  /// Returns whether it has not ended: a zombie only waits to be reaped.
  [[nodiscard]] bool is_alive() const noexcept { return state != 'Z' && state != 'X'; }
};

/// Returns nothing if there is no such process, or /proc does not tell.
[[nodiscard]] std::optional<listed_process> look_at_process(pid_t pid);
/// Throws std::system_error for an errno that says nothing of a process, but that looking
/// is not possible now, as without a free descriptor.
void require_look(int error);
/// Returns all that can be seen. Errors: those of `require_look`.
[[nodiscard]] std::vector<listed_process> list_processes();
/// Returns whether NAME=value is in the environment that the process was executed with;
/// false if we may not look. Errors: those of `require_look`.
[[nodiscard]] bool has_in_environment(pid_t pid, const std::string& variable);
/// Signals exactly that process, not a later one with its number. False: it is gone.
/// Where pidfd_open is refused, a few microseconds are left in which both could change.
bool signal_process(const listed_process& which, int number) noexcept;

}  // namespace manyworlds::inline v0::detail
