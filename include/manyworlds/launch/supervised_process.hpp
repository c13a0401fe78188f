// Supervised process: a program that is started, watched, started again and ended.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/launch/process_options.hpp"
#include "manyworlds/source_position.hpp"
#include "manyworlds/world/runtime.hpp"

namespace manyworlds::inline v0 {

namespace detail {

class process_core;

/// Awaits the end of a process.
class MANYWORLDS_MUST_AWAIT exit_awaitable : public not_for_asio {
 public:
  explicit exit_awaitable(task<exit_reason> end) noexcept : end_(std::move(end)) {}

  /// Gives up after that time, by `timed_out`. The process goes on.
  [[nodiscard]] within_awaitable<exit_reason> within(duration limit) && {
    return within_awaitable<exit_reason>(std::move(end_), limit);
  }
  task_awaiter<exit_reason> operator co_await() && noexcept {
    return std::move(end_).operator co_await();
  }

 private:
  task<exit_reason> end_;
};

}  // namespace detail

/// Thrown where a process cannot be started, or its tree cannot be ended.
///
///     try {
///       co_await engine.started();
///     } catch (const mw::process_error& e) {
///       if (e.reason().error == ENOENT) use("not installed");
///     }
class MANYWORLDS_EXPORT process_error : public std::exception {
 public:
  explicit process_error(exit_reason reason)
      : reason_(std::move(reason)), text_(reason_.text()) {}
  process_error(exit_reason reason, std::string text)
      : reason_(std::move(reason)), text_(std::move(text)) {}

  [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }
  [[nodiscard]] const exit_reason& reason() const noexcept { return reason_; }

 private:
  exit_reason reason_;
  std::string text_;
};

/// The time between SIGTERM and SIGKILL.
struct grace {
  explicit constexpr grace(duration time) noexcept : length(time) {}
  duration length;
};

/// A program that is started, watched, started again and ended with all that descends
/// from it: its tree. Nothing of it is global: no SIGCHLD, no wait for any child.
///
///     mw::process_options how("./engine", {"--port", "0"});
///     mw::supervised_process engine(rt, how);
///     co_await engine.started();  // or: cannot execute "./engine": permission denied
///     const mw::exit_reason end = co_await engine.ended().within(1h);
///     co_await engine.stop(mw::grace(10s));
///
/// Constructing describes it; the first await of `started` or `ended` starts it. Where a
/// control group of version 2 can be made, that is the tree. Elsewhere the tree is what
/// /proc tells: the program's session, its descendants, and what has its mark in the
/// environment. The log says once which it is.
///
/// When the program ends by itself, its descendants go on until `stop`, the next start or
/// the destructor. Destroying it kills the tree, by SIGKILL and without a grace, and does
/// not wait for that: the runtime does. When this process ends, however, the kernel kills
/// the program; a `process_guard` kills also the rest.
///
/// No function that takes lines or ends is called after the destructor. Where that runs
/// on another thread than the reactor's, a function that runs meanwhile ends after it. A
/// task that takes a line is cancelled by it, and unwound in the reactor's next turns.
///
/// Thread: the runtime's reactor; the destructor may run on any. Lifetime: the runtime
/// outlives it, and no task waits for it when it is destroyed.
///
/// Errors: `process_error`, as said at the functions.
class supervised_process {
 public:
  /// Errors: std::logic_error if the runtime's environment starts no programs.
  supervised_process(runtime& rt, process_options how,
                     source_position where = source_position());
  supervised_process(const supervised_process&) = delete;
  supervised_process& operator=(const supervised_process&) = delete;
  ~supervised_process();

  /// Waits until the program runs. A cancellation ends the wait only. Errors:
  /// `process_error` if it could not be started, or was stopped before.
  task<void> started();
  /// Waits until it has ended and will not be started again, and gives the reason: also
  /// `not_started`. Several tasks may wait. A cancellation ends the wait only. Errors:
  /// none.
  detail::exit_awaitable ended();
  /// Sends SIGTERM to the tree, then SIGKILL to what is left of it after `patience`, and
  /// waits until all of it has ended. It is not started again.
  ///
  /// A cancellation ends the wait only. Another call may shorten the grace. Errors:
  /// `process_error` if the tree is still there 30 s after SIGKILL, as a process is that
  /// hangs in the kernel, or belongs to another user.
  task<void> stop(grace patience = grace(std::chrono::seconds(30)));

  /// Lets what descends from the program live on, and this process's guard forget it.
  /// Returns false, and does nothing, unless the program has ended by itself and will not
  /// be started again.
  bool leave_descendants() noexcept;

  /// Sends a signal to the program, without its descendants. False: it does not run.
  bool signal(int number) noexcept;
  /// Returns its number; 0 if it does not run.
  [[nodiscard]] pid_t pid() const noexcept;
  /// Returns how often it was started.
  [[nodiscard]] std::uint64_t starts() const noexcept;

 private:
  std::shared_ptr<detail::process_core> core_;
};

}  // namespace manyworlds::inline v0
