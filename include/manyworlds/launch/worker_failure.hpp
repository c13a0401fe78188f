// Worker failure: how one worker of a launched job has failed, and what is said of all.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "manyworlds/detail/config.hpp"
#include "manyworlds/launch/exit_reason.hpp"

namespace manyworlds::inline v0 {

/// The end of one worker that was no success. A worker that was ended because of another
/// is none.
struct worker_failure {
  int rank = 0;
  int local_rank = 0;
  std::string host;
  exit_reason reason;
  /// The file in which the worker said what it was; empty if it wrote none.
  std::string error_file;
  /// The call stack, or the message, that stands in the file; else what the system says.
  std::string traceback;
  /// When it happened by the worker's own word, else when it was seen: seconds since
  /// 1970.
  std::int64_t time = 0;

  /// Returns the exit code as torchrun shows it: a signal's number is negative.
  [[nodiscard]] int code() const noexcept;

  friend bool operator==(const worker_failure&, const worker_failure&) = default;
};

/// Returns the summary that torchrun prints, byte for byte (torch 2.6.0,
/// multiprocessing/errors, ChildFailedError). The first failure is the root cause.
[[nodiscard]] std::string failure_summary(std::string_view program,
                                          std::span<const worker_failure> failures);

}  // namespace manyworlds::inline v0
