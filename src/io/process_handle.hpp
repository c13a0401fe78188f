// Process handle: starts a program in a process, signals it and awaits its end.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/descriptor.hpp"
#include "io/process_host.hpp"
#include "io/reactor.hpp"

namespace manyworlds::inline v0::detail {

/// One child of ours, by its pidfd. It uses no SIGCHLD and no wait for any child.
class process_handle {
 public:
  /// Where no pidfd can be made, `end` is an eventfd that a thread of its own sets.
  process_handle(pid_t pid, unique_descriptor end, bool is_pidfd) noexcept
      : pid_(pid), end_(std::move(end)), is_pidfd_(is_pidfd) {}

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  [[nodiscard]] bool has_ended() const noexcept;
  /// Waits until it has ended. Lifetime: this object outlives the task.
  [[nodiscard]] task<void> ended(reactor& home) const;
  /// Signals this process alone. It does nothing once that was reaped.
  void signal(int number) const noexcept;
  /// Frees the process, and returns how it ended. A tracer may hold its end for a while;
  /// after 5 s it is given up, and the status says that it is lost. Precondition:
  /// has_ended(), and no call has returned a status before. Lifetime: this object
  /// outlives the task.
  [[nodiscard]] task<process_status> reap(reactor& home);

 private:
  /// Returns nothing while a tracer holds it.
  [[nodiscard]] std::optional<process_status> try_to_reap() const noexcept;

  pid_t pid_;
  unique_descriptor end_;
  bool is_pidfd_;
  bool is_reaped_ = false;
};

/// Beside the description: what the host adds to it.
struct start_additions {
  /// A descriptor of the control group's folder that the process enters; -1 for none.
  int group = -1;
  /// NAME=value, in the environment of the process.
  std::string variable;
};

/// Starts a program by vfork: the calling thread is held until the program runs, and no
/// memory is copied. SIGKILL comes to the process when the *calling thread* ends.
[[nodiscard]] std::variant<process_handle, start_failure> start_process(
    const process_description& what, const start_additions& more);

}  // namespace manyworlds::inline v0::detail
