// Log follower: shows on the console what a worker writes into its file.
#pragma once

#include <sys/types.h>

#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/descriptor.hpp"
#include "io/reactor.hpp"
#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/coro/worker_thread.hpp"

namespace manyworlds::inline v0::detail {

/// Writes to this process's own output, on a thread that may block there.
class console {
 public:
  /// Errors: std::system_error if there can be no other thread or descriptor.
  console();

  /// Writes all of it, or drops it: where the output is broken, or after `give_up`, which
  /// a cancellation calls.
  [[nodiscard]] task<void> write(int to, std::string_view text);
  /// Drops what is not written, now and from now on.
  void give_up() noexcept;

 private:
  const unique_descriptor given_up_;
  worker_thread thread_;
};

/// A file for the lines of several workers that contain one of some texts. Thread: the
/// reactor's.
class line_filter {
 public:
  /// Appends to the file, and makes it if it is not there. Errors: std::system_error
  /// naming it.
  line_filter(const std::string& path, std::vector<std::string> texts);

  [[nodiscard]] bool takes(std::string_view line) const noexcept;
  [[nodiscard]] int file() const noexcept { return file_.get(); }

 private:
  const unique_descriptor file_;
  const std::vector<std::string> texts_;
};

/// Follows one file by inotify, and writes its lines, each behind a prefix, to a
/// descriptor. The worker writes the file by itself, so that a console that is slow, or
/// this process's end, does not hold it up.
///
/// Thread: the reactor's. Lifetime: the reactor and the console outlive it.
class log_follower {
 public:
  /// Makes the file if it is not there, and follows it from its end. Errors:
  /// std::system_error naming the file. The filter may be null.
  log_follower(reactor& home, console& shown_on, const std::string& path, int to,
               std::string prefix, std::shared_ptr<const line_filter> filter);
  log_follower(const log_follower&) = delete;
  log_follower& operator=(const log_follower&) = delete;

  /// Writes lines until the worker has ended and all that it wrote is written, however
  /// long the console takes. Errors: none; what cannot be written is dropped.
  [[nodiscard]] task<void> run();
  /// The worker has ended: what the file has now is all, also if a descendant goes on.
  void note_end() noexcept;

 private:
  [[nodiscard]] task<void> show_new();
  [[nodiscard]] task<void> show_whole_lines();
  [[nodiscard]] task<void> until_changed();
  /// Begins again at the front of a file that was cut. Returns whether it was.
  bool note_size(off_t now) noexcept;

  reactor& home_;
  console& console_;
  const unique_descriptor file_;
  const unique_descriptor changes_;
  const int to_;
  const std::string prefix_;
  const std::shared_ptr<const line_filter> filter_;
  off_t read_;  ///< bytes of the file
  off_t end_ = std::numeric_limits<off_t>::max();
  std::string begun_;  ///< of a line
  event has_ended_;
};

}  // namespace manyworlds::inline v0::detail
