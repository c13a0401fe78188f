// Worker source: where the workers of a session come from.
#pragma once

#include <cstdint>
#include <string>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/store/store.hpp"

namespace manyworlds::inline v0::detail {

class local_places;
class node_relay;

/// Starts and ends incarnations of workers. Thread: the session's reactor. Lifetime: its
/// tasks have ended when it is destroyed, which ends all that it has started.
class worker_source {
 public:
  worker_source() = default;
  worker_source(const worker_source&) = delete;
  worker_source& operator=(const worker_source&) = delete;
  virtual ~worker_source() = default;

  /// Is told the session's name and how many workers it has, before all else.
  virtual void name_session(const std::string& name, int workers) = 0;
  /// Does what the source does beside its other tasks, until `over` is set: then all
  /// workers were ended. Errors: none. Lifetime: the event outlives the task.
  [[nodiscard]] virtual task<void> run(event& over) { co_await over; }
  /// Returns where controller and workers meet.
  [[nodiscard]] virtual store& meeting() noexcept = 0;
  /// Starts the incarnation, which joins by itself, here or its node's agent.
  /// Precondition: the one before was ended. Errors: what cannot be started, as text.
  [[nodiscard]] virtual task<void> start(int worker, std::uint64_t incarnation) = 0;
  /// Returns whether a worker that is lost at the start of the session comes again.
  [[nodiscard]] virtual bool comes_again() const noexcept { return false; }
  /// Waits until it has ended by itself, and says how. Errors: none.
  [[nodiscard]] virtual task<std::string> ended(int worker) = 0;
  /// Ends what is left of it, after `patience` by force where that is possible. Errors:
  /// none.
  [[nodiscard]] virtual task<void> end(int worker, duration patience) = 0;
  /// Returns the number of its process; 0 for a thread.
  [[nodiscard]] virtual std::int64_t pid(int worker) const noexcept = 0;
  /// Returns the places that its calls can fill; null unless it is a thread of this
  /// process.
  [[nodiscard]] virtual local_places* locals(int) noexcept { return nullptr; }
  /// Returns by what it is reached; null if it joins this process.
  [[nodiscard]] virtual node_relay* relay(int) noexcept { return nullptr; }
};

}  // namespace manyworlds::inline v0::detail
