// Process guard: ends the programs of a starter that was killed.
#pragma once

#include <sys/types.h>

#include <memory>

#include "manyworlds/detail/access.hpp"

namespace manyworlds::inline v0 {

namespace detail {
class guard_connection;
}  // namespace detail

/// A small process beside this one. When this process ends, also by SIGKILL, the guard
/// kills all that descends from programs that were started with `guarded_by`. Without a
/// guard only the programs themselves end then, and not what they have started.
///
///     mw::process_guard guard;  // in main, before any thread
///     mw::runtime rt(mw::runtime_options{});
///     mw::process_options how("./engine");
///     how.guarded_by(guard);
///
/// It is made by fork and executes nothing. It is in a session of its own and heeds no
/// signal but SIGKILL. `mwrun` has its guard as a parent instead. Lifetime: it outlives
/// the runtimes that start the programs; its destructor ends what they have left.
class process_guard {
 public:
  /// Forks. Errors: std::logic_error if this process has other threads, the locks of
  /// which a fork would copy; std::system_error if there can be no other process.
  process_guard();
  process_guard(const process_guard&) = delete;
  process_guard& operator=(const process_guard&) = delete;
  ~process_guard();

  /// Returns the guard's number.
  [[nodiscard]] pid_t pid() const noexcept;

 private:
  friend struct detail::access;
  /// For programs of which the guard is the parent.
  explicit process_guard(std::unique_ptr<detail::guard_connection> core) noexcept;
  [[nodiscard]] detail::guard_connection& existing_core() noexcept { return *core_; }

  std::unique_ptr<detail::guard_connection> core_;
};

}  // namespace manyworlds::inline v0
