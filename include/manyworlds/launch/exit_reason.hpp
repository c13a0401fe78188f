// Exit reason: why a process has ended, or has not even begun.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "manyworlds/detail/config.hpp"
#include "manyworlds/io/start_step.hpp"
#include "manyworlds/time.hpp"

namespace manyworlds::inline v0 {

/// How a process ended.
enum class exit_kind : std::uint8_t {
  exited,            ///< by itself, with `code`
  signaled,          ///< by `signal`, which this library did not send
  out_of_memory,     ///< the kernel killed it for memory
  stopped,           ///< this library ended it; `stop` says how
  not_started,       ///< it could not be started: `step` and `error`
  reaped_elsewhere,  ///< other code waited for it, SIGCHLD is ignored, or it is traced
};

/// Returns the name of the enumerator.
[[nodiscard]] std::string_view name_of(exit_kind kind) noexcept;

/// What this library did to end a process.
enum class stop_step : std::uint8_t {
  none,    ///< nothing
  asked,   ///< it sent SIGTERM, and the process ended within the grace
  killed,  ///< it sent SIGKILL
};

/// Returns the name of the enumerator.
[[nodiscard]] std::string_view name_of(stop_step step) noexcept;

/// Why one process has ended.
struct exit_reason {
  exit_kind kind = exit_kind::exited;
  /// The exit code, where the process exited.
  int code = 0;
  /// The signal that ended it; 0 if it exited.
  int signal = 0;
  bool core_dumped = false;
  stop_step stop = stop_step::none;
  /// The step that failed and its errno, where the process was not started.
  start_step step = start_step::none;
  int error = 0;
  /// What that step concerned, such as a folder; empty if it is the program.
  std::string object;
  /// The program as it was given.
  std::string program;
  pid_t pid = 0;
  /// How long it ran.
  duration ran_for{};

  /// Returns whether it exited by itself with code 0.
  [[nodiscard]] bool is_success() const noexcept {
    return kind == exit_kind::exited && code == 0;
  }
  /// Returns one sentence for people, such as `"./engine" (pid 7) exited with code 3`, or
  /// `cannot execute "./engine": permission denied`.
  [[nodiscard]] std::string text() const;

  friend bool operator==(const exit_reason&, const exit_reason&) noexcept = default;
};

}  // namespace manyworlds::inline v0
