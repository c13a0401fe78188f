// Simulated program: what a simulation runs where a runtime starts a program.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/task.hpp"

namespace manyworlds::inline v0 {

class simulated_process;

namespace detail {
class simulated_child;
}  // namespace detail

/// One start of a program, as its body sees it. The body is a coroutine in a process of
/// its own, on the host of its starter; what it gives is the exit code.
///
///     sim.add_process("node").add_program(
///         "engine", [](mw::simulated_program& self) -> mw::task<int> {
///           self.print("ready");
///           co_await self.terminated();  // without it SIGTERM ends the program
///           co_return 0;
///         });
///
/// Lifetime: it lives as long as its body runs. Thread: the simulation's.
class simulated_program {
 public:
  simulated_program(const simulated_program&) = delete;
  simulated_program& operator=(const simulated_program&) = delete;

  [[nodiscard]] const std::vector<std::string>& arguments() const noexcept {
    return arguments_;
  }
  /// Returns what was set for it by `process_options::set`; nothing else is inherited.
  [[nodiscard]] std::optional<std::string_view> variable(std::string_view name) const;
  /// Returns its process, in which it may have a runtime of its own.
  [[nodiscard]] simulated_process& process() const noexcept { return *process_; }
  [[nodiscard]] pid_t pid() const noexcept;

  /// Writes a line to its output.
  void print(std::string_view line);
  /// Writes a line to its errors.
  void print_error(std::string_view line);
  /// Waits for SIGTERM, which no longer ends the program once this was called. Errors:
  /// none.
  [[nodiscard]] detail::event_awaiter terminated() noexcept {
    heeds_terminate_ = true;
    return terminate_.wait();
  }

 private:
  friend class detail::simulated_child;
  simulated_program() = default;

  simulated_process* process_ = nullptr;
  std::vector<std::string> arguments_;
  std::vector<std::pair<std::string, std::string>> variables_;
  std::function<void(std::string_view, int)> output_;
  event terminate_;
  bool heeds_terminate_ = false;
};

/// The body of a program. One that throws ends by SIGABRT.
using simulated_body = std::function<task<int>(simulated_program&)>;

}  // namespace manyworlds::inline v0
