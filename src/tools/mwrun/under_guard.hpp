// Under guard: mwrun is two processes, of which each clears up after the other.
#pragma once

#include <sys/types.h>

#include <functional>
#include <vector>

#include "io/descriptor.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/launch/process_guard.hpp"
#include "mwrun/command_line.hpp"

namespace mwrun {

/// What the agent, which does all the work, has of its guard, which is its parent.
class guard_link {
 public:
  /// The descriptors are those by which the guard hears of trees and gives orders.
  guard_link(pid_t guard, mw::detail::unique_descriptor trees,
             mw::detail::unique_descriptor orders);
  guard_link(const guard_link&) = delete;
  guard_link& operator=(const guard_link&) = delete;
  ~guard_link() = default;

  [[nodiscard]] mw::process_guard& guard() noexcept { return guard_; }
  /// Gives the number of the next signal that the guard has got; 0 when it has ended.
  [[nodiscard]] mw::task<int> next_order();

 private:
  mw::process_guard guard_;
  mw::detail::unique_descriptor orders_;
};

/// What a guard is told before it has an agent.
struct guard_plan {
  /// The signals that are orders to end.
  std::vector<int> signals;
  /// What workers leave is let be.
  bool keeps_descendants = false;
};

/// How the agent has ended.
struct agent_end {
  int code = 0;
  int signal = 0;  ///< 0 if it exited
};

/// Forks, and runs `work` in the child. Returns in both processes; in the guard when the
/// agent has ended, and all that it has started. Precondition: there is no other thread.
/// Errors: std::system_error if there can be no other process; in the agent what `work`
/// throws.
///
/// The guard has the terminal: Ctrl-C, Ctrl-Z and the end of the terminal concern it
/// alone. The agent has a session of its own. Ctrl-Z stops the guard, so that the shell
/// goes on. It stops neither agent nor workers: other nodes would take a stopped agent
/// for lost. A guard that is stopped ends nothing until it goes on.
[[nodiscard]] agent_end run_under_guard(const guard_plan& plan,
                                        const std::function<int(guard_link&)>& work);

/// Ends this process as its agent was ended, by that signal, so that shells and batch
/// systems see what they would see of one process.
[[noreturn]] void end_as_signaled(int number);

}  // namespace mwrun
