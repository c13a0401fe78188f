// File timers: deadlines that PyTorch's FileTimerClient writes into a pipe.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "io/descriptor.hpp"
#include "io/reactor.hpp"
#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/task.hpp"

namespace manyworlds::inline v0::detail {

/// One line of the pipe. A negative time lets go of the timer.
struct file_timer_line {
  pid_t pid = 0;
  std::string scope;
  /// Seconds since 1970.
  double expires = -1;
  int signal = 0;
};

/// Returns nothing for what is no line of PyTorch 2.6
/// (torch/distributed/elastic/timer/file_based_local_timer.py).
[[nodiscard]] std::optional<file_timer_line> read_file_timer(const std::string& line);

/// The server that PyTorch's agents run where TORCHELASTIC_ENABLE_FILE_TIMER is 1.
/// Thread: the reactor's.
class file_timers {
 public:
  /// Is told of a process that has overrun: its scope, and the signal that it asked for.
  using overrun = std::function<void(const file_timer_line& line)>;

  /// Makes the pipe; without a path, in a folder of its own. A pipe that is there is
  /// replaced, as PyTorch does. Errors: std::system_error naming the path.
  file_timers(reactor& home, const std::string& path, overrun told);
  file_timers(const file_timers&) = delete;
  file_timers& operator=(const file_timers&) = delete;
  ~file_timers();

  /// Returns the value of TORCHELASTIC_TIMER_FILE.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Reads lines, and tells of timers that expire, until it is cancelled.
  [[nodiscard]] task<void> run();

 private:
  using key = std::pair<pid_t, std::string>;

  [[nodiscard]] task<void> read_lines();
  [[nodiscard]] task<void> expire();
  /// Returns false if there are none.
  bool take_bytes();
  void take(const std::string& line);

  reactor& home_;
  const overrun told_;
  std::string folder_;
  std::string path_;
  unique_descriptor pipe_;
  std::string begun_;  ///< of a line
  std::map<key, file_timer_line> timers_;
  event changed_;
};

}  // namespace manyworlds::inline v0::detail
