// Process host: starts programs. There is that of this machine, and a simulated one.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string>
#include <variant>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/detail/process_description.hpp"
#include "manyworlds/io/start_step.hpp"

namespace manyworlds::inline v0::detail {

/// How a process ended, as its parent is told.
struct process_status {
  int code = 0;
  int signal = 0;  ///< 0 if it exited
  bool core_dumped = false;
  /// The kernel killed it for memory, as far as that can be known.
  bool out_of_memory = false;
  /// Other code of this program waited for it, SIGCHLD is ignored, or a tracer holds it.
  bool reaped_elsewhere = false;
};

/// Why a program was not started.
struct start_failure {
  start_step step = start_step::none;
  int error = 0;
  std::string object;  ///< what it concerned; empty for the program
};

/// A process that was started, with all that descends from it. Thread: the reactor on
/// which it was started.
///
/// Lifetime: destroyed when its tree is empty; else what is left of it goes on.
class hosted_process {
 public:
  hosted_process() = default;
  hosted_process(const hosted_process&) = delete;
  hosted_process& operator=(const hosted_process&) = delete;
  virtual ~hosted_process() = default;

  [[nodiscard]] virtual pid_t pid() const noexcept = 0;
  /// Returns whether the process itself has ended; what descends from it may go on.
  [[nodiscard]] virtual bool has_ended() const noexcept = 0;
  /// Signals the process alone.
  virtual void signal(int number) noexcept = 0;
  /// Awaits its end, and gives the status. Called until it has given one.
  [[nodiscard]] virtual task<process_status> ended() = 0;
  /// Sends a signal to all that lives of the tree, and gives the number of processes. No
  /// process escapes SIGKILL by starting another one meanwhile.
  [[nodiscard]] virtual task<std::size_t> signal_tree(int number) = 0;
  /// Sends it to what a process that has ended started while the tree was signalled.
  [[nodiscard]] virtual task<std::size_t> signal_missed(int number) = 0;
  [[nodiscard]] virtual task<bool> is_tree_empty() = 0;
};

/// How the tree of a process is known. A guard in another process ends it by this alone.
struct tree_mark {
  /// The control group's folder; empty where none can be made.
  std::string group;
  /// A variable of the environment that descendants inherit, as NAME=value.
  std::string variable;
};

/// Is told of a tree before its first process starts, and when it is empty.
class tree_listener {
 public:
  virtual void tree_begins(const tree_mark& mark) = 0;
  virtual void tree_has_ended(const tree_mark& mark) noexcept = 0;

 protected:
  ~tree_listener() = default;
};

using start_outcome = std::variant<std::unique_ptr<hosted_process>, start_failure>;

/// Thread: the reactors of the runtime that it belongs to.
class process_host {
 public:
  process_host() = default;
  process_host(const process_host&) = delete;
  process_host& operator=(const process_host&) = delete;
  virtual ~process_host() = default;

  /// Starts a program, and gives its process once the program runs in it. A task that is
  /// cancelled meanwhile gets the outcome all the same. Lifetime: `what` and `listener`,
  /// which may be null, outlive the task.
  [[nodiscard]] virtual task<start_outcome> start(const process_description& what,
                                                  tree_listener* listener) = 0;
  /// Returns false for a simulation, the programs of which have no descriptors.
  [[nodiscard]] virtual bool passes_descriptors() const noexcept { return true; }
  /// Returns a line for the log that says how trees are known; empty after the first
  /// call that had one.
  [[nodiscard]] virtual std::string take_notice() = 0;
};

}  // namespace manyworlds::inline v0::detail
