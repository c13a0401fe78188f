// Log follower: shows on the console what a worker writes into its file.
#pragma once

#include <string>
#include <string_view>

#include "io/descriptor.hpp"
#include "io/reactor.hpp"
#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/coro/worker_thread.hpp"

namespace manyworlds::inline v0::detail {

/// Follows one file by inotify, and writes its lines, each behind a prefix, to a
/// descriptor. The worker writes the file by itself, so that a console that is slow, or
/// this process's end, does not hold it up.
///
/// Thread: the reactor's; the console is written on `writer`, which all share. Lifetime:
/// both outlive it.
class log_follower {
 public:
  /// Makes the file if it is not there, and follows it from its end. Errors:
  /// std::system_error naming the file.
  log_follower(reactor& home, worker_thread& writer, const std::string& path, int to,
               std::string prefix);
  log_follower(const log_follower&) = delete;
  log_follower& operator=(const log_follower&) = delete;

  /// Writes lines until the worker has ended and all that it wrote is written. Errors:
  /// none; what cannot be written is dropped.
  [[nodiscard]] task<void> run();
  /// The worker has ended: what the file has now is all.
  void note_end() noexcept { has_ended_.set(); }

 private:
  [[nodiscard]] task<void> show_new();
  [[nodiscard]] std::string whole_lines();
  [[nodiscard]] task<void> until_changed();

  reactor& home_;
  worker_thread& writer_;
  const unique_descriptor file_;
  const unique_descriptor changes_;
  const int to_;
  const std::string prefix_;
  std::string begun_;  ///< of a line
  event has_ended_;
};

}  // namespace manyworlds::inline v0::detail
