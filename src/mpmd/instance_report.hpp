// Instance report: what an agent says of an instance that it has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "manyworlds/detail/config.hpp"
#include "manyworlds/launch/exit_reason.hpp"
#include "manyworlds/mpmd/job_placement.hpp"

namespace manyworlds::inline v0::detail {

/// How an incarnation has ended, in short.
struct instance_exit {
  exit_kind kind = exit_kind::exited;
  /// Of one that exited. Of one that was not started: the errno by which its program
  /// could not be found or executed, or its folder not entered; otherwise 0.
  int code = 0;
  int signal = 0;
  /// One sentence for people, `exit_reason::text`.
  std::string text;

  [[nodiscard]] bool is_success() const noexcept {
    return kind == exit_kind::exited && code == 0;
  }
  /// Returns whether it was not started, and would not be on that node the next time:
  /// there is no such program or folder, no permission, or a wrong format. What is short
  /// for a while, as memory or process numbers, does not last.
  [[nodiscard]] bool is_lasting() const noexcept;
  /// Returns the exit code of a shell: 128 and the signal's number where one ended it.
  [[nodiscard]] int shell_code() const noexcept {
    if (signal != 0) return 128 + signal;
    return kind == exit_kind::exited ? code : 1;
  }

  friend bool operator==(const instance_exit&, const instance_exit&) = default;
};

/// How far an incarnation is, as its agent sees it.
enum class instance_life : std::uint8_t {
  starting,  ///< its process is being started
  running,   ///< its process runs, and it has not said that it is ready
  ready,
  ending,  ///< it was told to end
  ended,
};

[[nodiscard]] std::string_view name_of(instance_life life) noexcept;
[[nodiscard]] std::optional<instance_life> life_named(std::string_view name) noexcept;
[[nodiscard]] std::optional<exit_kind> exit_kind_named(std::string_view name) noexcept;

struct instance_report {
  instance_id instance;
  std::uint64_t incarnation = 0;
  instance_life life = instance_life::starting;
  std::int64_t pid = 0;
  /// When its process started, in clock ticks since the machine did: with `pid` it tells
  /// a process from a later one of the same number.
  std::uint64_t start_time = 0;
  std::uint64_t progress = 0;
  /// Of one that has ended.
  instance_exit exit;

  friend bool operator==(const instance_report&, const instance_report&) = default;
};

}  // namespace manyworlds::inline v0::detail
