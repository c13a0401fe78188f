// Runtime: a reactor with its threads. Where tasks start, and what worlds belong to.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/io/turn_times.hpp"
#include "manyworlds/source_position.hpp"
#include "manyworlds/world/runtime_options.hpp"
#include "manyworlds/world/started.hpp"

namespace manyworlds::inline v0 {

class pool_registry;
struct runtime_report;
class runtime_core;

/// Owns a reactor for user coroutines and a service thread for everything that must go on
/// while those block: listening, hellos, heartbeats, forming.
///
/// The reactor is turned by whoever starts first: `run` (the calling thread), `start` (a
/// thread of the runtime's own), or `poll` (a foreign loop). Two runtimes in one process
/// know nothing of each other.
///
/// Destroying it cancels all tasks, breaks its worlds (`runtime_stopped`, told to the
/// peers) and joins its threads. That is bounded: a task that waits in a collective
/// breaks that world at once; all other worlds that are not being left break 2 s later;
/// what still runs after 10 s is named in the log as an error, with the place where it
/// was started, and left behind with its frame (a task that blocks its thread, an
/// offloaded function that does not return, a shielded operation without an end). The
/// same holds for what `start_service` was given, after 20 s. So is
/// everything if the runtime is destroyed inside one of its own tasks, as `exit()` in a
/// task does to one of static lifetime. Do not rely on that: `stop` it and let its tasks
/// end.
///
/// In a forked child all of it throws world_error (`forked`), and destroying it touches
/// nothing that the parent uses.
class runtime {
 public:
  /// Throws std::system_error (the address is in use, io_uring was demanded and is
  /// refused ...) or std::invalid_argument (a bad address, no secret beyond loopback).
  explicit runtime(runtime_options options = {});
  runtime(const runtime&) = delete;
  runtime& operator=(const runtime&) = delete;
  ~runtime();

  /// Runs a task to its end on the calling thread, turning the reactor. Gives its value
  /// or throws what it threw; std::logic_error if another thread turns the reactor. What
  /// `stop` cancelled has simply ended, or, if it was to give a value, throws `stopped`.
  template <class T>
  T run(task<T> t, source_position where = source_position());

  /// Hands a task to the reactor, from any thread. The first call starts the reactor's
  /// thread unless `run` or `poll` turns it. What the task throws is given by `get()`, or
  /// else logged as an error, with the place of this call.
  template <class T>
  started<T> start(task<T> t, source_position where = source_position());

  /// Hands a task to the service thread, where nothing the user does delays it; it must
  /// not block. For stores and the like. Cancelled when the runtime ends.
  started<void> start_service(task<void> t, source_position where = source_position());

  /// No new worlds; tasks may end by themselves for `drain`, then they are cancelled. One
  /// that waits in a collective breaks that world then (`runtime_stopped`). From any
  /// thread, also inside a signal-handling thread; returns at once.
  void stop(duration drain = duration::zero());
  [[nodiscard]] bool is_stopping() const noexcept;
  /// Triggered by `stop` at once, before the drain has passed: what waits for new work
  /// ends then, and what is open may go on until tasks are cancelled.
  ///
  ///     auto next = co_await stop_on(queue.pop(), rt.draining());   // throws `stopped`
  ///
  /// `keep`, `accept` and `connect` heed it. Its callbacks run on the thread that calls
  /// `stop`. Any thread; triggered by the runtime's destruction too.
  [[nodiscard]] std::stop_token draining() const noexcept;

  // Inside a foreign loop, always on one thread.
  /// One bounded turn. True if something was done.
  bool poll();
  /// Arms the wake-up of `descriptor`, looks again, and tells how long the loop may sleep
  /// on it: nothing means for ever.
  [[nodiscard]] std::optional<duration> prepare_wait();
  /// A descriptor that polls readable when `poll` has something to do.
  [[nodiscard]] int descriptor();

  /// How long the turns of the reactor took that user tasks live on: what the library
  /// took of them, which is bounded, and what tasks took. Any thread.
  [[nodiscard]] turn_times turns() const noexcept;

  /// What everything is waiting for, as text; from any thread and from a debugger, also
  /// while the reactor is stuck in user code.
  [[nodiscard]] std::string dump() const;
  /// The same for programs.
  [[nodiscard]] std::string dump_json() const;
  /// Serves both over a Unix socket that `mwstat PID` finds; off unless called.
  void serve_dumps();

  /// For shared pools whose memory this runtime's worlds send: `shared_pool{rt.pools(),
  /// bytes}`. Any thread.
  [[nodiscard]] const std::shared_ptr<pool_registry>& pools() const noexcept;

  /// The reactor that user tasks live on: their home.
  [[nodiscard]] reactor& home() noexcept;
  /// The service reactor, for stores and the like that must not depend on user code.
  [[nodiscard]] reactor& service() noexcept;
  [[nodiscard]] runtime_core& core() noexcept { return *core_; }
  [[nodiscard]] std::shared_ptr<runtime_core> core_ptr() const noexcept { return core_; }

 private:
  enum class turning : unsigned char { not_turned, a_caller, a_thread, a_foreign_loop };

  /// What a thread of this runtime needs, which may outlive it.
  struct own_thread;

  void refuse_in_forked_child() const;
  [[nodiscard]] const char* why_taken() const noexcept;
  void take_the_reactor(turning how);
  void adopt(const std::shared_ptr<started_base>& root);
  void launch_reactor_thread();
  void launch_service();
  void turn_until_ended(started_base& root);
  [[nodiscard]] runtime_report report() const;
  [[nodiscard]] bool is_in_a_turn() const noexcept;
  [[nodiscard]] bool turns_elsewhere() const noexcept;
  template <class Over>
  bool turn_until(bool users, time_point by, Over&& over) noexcept;
  void end() noexcept;
  void end_in_forked_child() noexcept;
  void end_within_a_turn() noexcept;
  [[nodiscard]] bool end_tasks() noexcept;
  void break_worlds(bool also_closing) noexcept;
  void drain_worlds(duration patience) noexcept;
  [[nodiscard]] bool end_reactor_thread() noexcept;
  [[nodiscard]] bool end_service() noexcept;
  void tell_of_what_runs(std::string_view why) noexcept;
  void leave_behind() noexcept;
  void keep_what_is_left() noexcept;

  std::shared_ptr<runtime_core> core_;
  class roots;
  std::unique_ptr<roots> roots_;
  std::unique_ptr<roots> service_roots_;
  std::mutex mutex_;
  /// Changed under the mutex. A foreign loop looks at it in each of its turns, without.
  std::atomic<turning> turning_{turning::not_turned};
  std::shared_ptr<own_thread> reactor_thread_;
  std::shared_ptr<own_thread> service_thread_;
  std::shared_ptr<started_base> service_root_;
  std::unique_ptr<class dump_server> dump_server_;
};

// ------------------------------------------------------------------------------------------------

template <class T>
started<T> runtime::start(task<T> t, source_position where) {
  auto state = std::make_shared<started_task<T>>(home(), std::move(t), where);
  started<T> handle(state);
  adopt(state);
  launch_reactor_thread();
  return handle;
}

template <class T>
T runtime::run(task<T> t, source_position where) {
  // Refuses an empty task, before the reactor is taken.
  auto state = std::make_shared<started_task<T>>(home(), std::move(t), where);
  take_the_reactor(turning::a_caller);
  // Thrown by the end of this function.
  state->is_taken_.store(true);
  adopt(state);
  turn_until_ended(*state);
  return state->take();
}

}  // namespace manyworlds::inline v0
