// Runtime: a reactor with its threads. Tasks start on it, and worlds belong to it.
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
#include "manyworlds/detail/access.hpp"
#include "manyworlds/detail/call_refusal.hpp"
#include "manyworlds/observe/turn_times.hpp"
#include "manyworlds/source_position.hpp"
#include "manyworlds/world/runtime_options.hpp"
#include "manyworlds/world/started.hpp"

namespace manyworlds::inline v0 {

namespace detail {
class dump_server;
class pool_registry;
struct runtime_report;
class runtime_core;
}  // namespace detail

/// Owns a reactor for user coroutines and a service thread. The service thread does
/// what must go on while those block: listening, hellos, heartbeats, forming.
///
///     mw::runtime rt(mw::runtime_options{.listen = "0.0.0.0:7000", .secret = secret});
///     mw::tcp_store store(rt, "node1:29500");
///     auto serving = rt.start(serve(rt, store));  // or rt.run(...), on this thread
///     rt.start(mw::until_signal({SIGTERM, SIGINT})).get();
///     rt.stop(10s);
///     serving.get();
///
/// The first of these calls decides which thread turns the reactor: `run` (the calling
/// thread), `start` (a thread of the runtime), or `poll` (a foreign loop). Two runtimes
/// in one process are independent.
///
/// Destroying it cancels all tasks, breaks its worlds (`runtime_stopped`, told to the
/// peers) and joins its threads. That is bounded:
/// - A task that waits in a collective breaks that world at once.
/// - All other worlds that are not being left break 2 s later.
/// - A task that still runs after 10 s is named in the log as an error, with the place
///   where it was started, and left behind with its frame. It may block its thread,
///   wait for an offloaded function that does not return, or shield an operation
///   without an end. The same holds for what `start_service` was given, after 20 s.
/// - If the runtime is destroyed inside one of its own tasks, everything is left
///   behind. `exit()` in a task does that to a runtime of static lifetime. Do not rely
///   on it: `stop` the runtime and let its tasks end.
///
/// In a forked child the destructor touches nothing that the parent uses.
///
/// Errors: world_error (`forked`) in a forked child, of the functions that name it;
/// others stand at the functions.
class runtime {
 public:
  /// Errors: std::system_error if the address is in use, io_uring was demanded and is
  /// refused, or descriptors are short. std::invalid_argument for a bad address, no
  /// secret beyond loopback, a secret in a build without OpenSSL, or a heartbeat under 1
  /// ms.
  explicit runtime(runtime_options options = {});
  // Compilers print the line, and the reason with it.
  runtime(const runtime&) = delete;  // pass a mw::runtime&
  runtime& operator=(const runtime&) = delete;
  ~runtime();

  /// Runs a task to its end on the calling thread, which turns the reactor. Returns its
  /// value. If `stop` cancels it, this returns if the task has no value. Later calls may
  /// come from other threads, and `start` and `poll` may follow.
  ///
  /// Errors: what the task threw; `stopped` if a value is expected and `stop` cancelled
  /// it; std::logic_error if the reactor is turned elsewhere, or by a simulation;
  /// std::invalid_argument for an empty task; std::system_error if another thread ran a
  /// task before, and there is no descriptor or memory for a new ring; `forked`.
  template <class T>
  T run(task<T> t, source_position where = source_position());

  /// Hands a task to the reactor. The first call starts the reactor's thread unless
  /// `run` or `poll` turns it. What the task throws is thrown by `get()`, or else
  /// logged as an error, with the place of this call. Thread: any. Errors:
  /// std::invalid_argument for an empty task; std::system_error without a thread, or as
  /// of `run`; `forked`.
  template <class T>
  started<T> start(task<T> t, source_position where = source_position());

  // Refuse what is no task, and say what to do about it.
  template <detail::no_task T>
  void run(T&&) {
    detail::refuse_to_start<T>();
  }
  template <detail::no_task T>
  void start(T&&) {
    detail::refuse_to_start<T>();
  }

  /// Hands a task to the service thread, where user code cannot delay it. It must not
  /// block, and is cancelled when the runtime ends. Meant for stores and the like.
  /// Errors: those of `start`.
  started<void> start_service(task<void> t, source_position where = source_position());

  /// Refuses new worlds at once, and cancels the tasks that have not ended by
  /// themselves after `drain`. A task that then waits in a collective breaks that world
  /// (`runtime_stopped`). Returns at once. Thread: any, also a signal-handling thread.
  void stop(duration drain = duration::zero());
  [[nodiscard]] bool is_stopping() const noexcept;
  /// Returns a token that `stop` triggers at once, before the drain has passed. A task
  /// that waits for new work should end then; open work may go on until tasks are
  /// cancelled.
  ///
  ///     auto next = co_await stop_on(queue.pop(), rt.draining());   // throws `stopped`
  ///
  /// `keep`, `accept` and `connect` heed it. Its callbacks run on the thread that calls
  /// `stop`. The destructor of the runtime triggers it too. Thread: any.
  [[nodiscard]] std::stop_token draining() const noexcept;

  // Inside a foreign loop, always on one thread.
  /// Runs one bounded turn. True if something was done. Errors: std::logic_error if `run`
  /// or `start` has the reactor turned, and within a turn, as from a task; `forked`.
  bool poll();
  /// Arms the wake-up of `descriptor`, looks again, and returns how long the loop may
  /// sleep on it; nothing means without a limit. Errors: those of `poll`.
  [[nodiscard]] std::optional<duration> prepare_wait();
  /// Returns a descriptor that polls readable when `poll` has something to do.
  [[nodiscard]] int descriptor();

  /// Returns what the user reactor waits on: "io_uring", "epoll" or "simulated".
  [[nodiscard]] std::string_view engine() const noexcept;

  /// Returns how long the turns of the user reactor took: the share of the library,
  /// which is bounded, and the share of tasks. Thread: any.
  [[nodiscard]] turn_times turns() const noexcept;
  /// Returns the same of the service thread.
  [[nodiscard]] turn_times service_turns() const noexcept;

  /// Returns what everything is waiting for, as text. Thread: any, and a debugger, also
  /// while the reactor is stuck in user code.
  [[nodiscard]] std::string dump() const;
  /// Returns the same for programs.
  [[nodiscard]] std::string dump_json() const;
  /// Serves both over a Unix socket that `mwstat PID` finds. It is off unless called.
  /// Errors: std::system_error if there is no descriptor or no free name.
  void serve_dumps();

  /// Returns the registry for shared pools from which this runtime's worlds send:
  /// `shared_pool{rt.pools(), bytes}`. Thread: any.
  [[nodiscard]] const std::shared_ptr<detail::pool_registry>& pools() const noexcept;

  /// Returns the reactor that user tasks live on: their home.
  [[nodiscard]] executor& home() noexcept;
  /// Returns the service reactor, for stores and the like that must not depend on user
  /// code.
  [[nodiscard]] executor& service() noexcept;

 private:
  friend struct detail::access;
  enum class turning : unsigned char { not_turned, a_caller, a_thread, a_foreign_loop };

  struct own_thread;  // may outlive the runtime

  [[nodiscard]] detail::runtime_core& existing_core() noexcept { return *core_; }
  void refuse_in_forked_child() const;
  [[nodiscard]] const char* why_taken() const noexcept;
  void take_the_reactor(turning how);
  void adopt(const std::shared_ptr<detail::started_base>& root);
  void launch_reactor_thread();
  void launch_service();
  /// Runs a task on the reactor that the caller has taken, and gives that back, also if
  /// it throws.
  void turn_until_ended(const std::shared_ptr<detail::started_base>& root);
  [[nodiscard]] detail::runtime_report report() const;
  [[nodiscard]] bool is_in_a_turn() const noexcept;
  [[nodiscard]] bool turns_elsewhere() const noexcept;
  template <class Over>
  bool turn_until(bool users, time_point by, Over&& over) noexcept;
  void end() noexcept;
  void end_in_forked_child() noexcept;
  void end_within_a_turn() noexcept;
  void take_to_end() noexcept;
  [[nodiscard]] bool end_tasks() noexcept;
  void break_worlds(bool also_closing) noexcept;
  void drain_worlds(duration patience) noexcept;
  [[nodiscard]] bool end_reactor_thread() noexcept;
  [[nodiscard]] bool end_service() noexcept;
  void tell_of_what_runs(std::string_view why) noexcept;
  void leave_behind() noexcept;
  void keep_what_is_left() noexcept;

  std::shared_ptr<detail::runtime_core> core_;
  class roots;
  std::unique_ptr<roots> roots_;
  std::unique_ptr<roots> service_roots_;
  std::mutex mutex_;
  /// Changed under the mutex. A foreign loop reads it without, in each of its turns.
  std::atomic<turning> turning_{turning::not_turned};
  std::shared_ptr<own_thread> reactor_thread_;
  std::shared_ptr<own_thread> service_thread_;
  std::shared_ptr<detail::started_base> service_root_;
  std::unique_ptr<detail::dump_server> dump_server_;
};

// ------------------------------------------------------------------------------------------------

template <class T>
started<T> runtime::start(task<T> t, source_position where) {
  auto state = std::make_shared<detail::started_task<T>>(home(), std::move(t), where);
  started<T> handle(state);
  adopt(state);
  launch_reactor_thread();
  return handle;
}

template <class T>
T runtime::run(task<T> t, source_position where) {
  // Refuses an empty task, before the reactor is taken.
  auto state = std::make_shared<detail::started_task<T>>(home(), std::move(t), where);
  take_the_reactor(turning::a_caller);
  // The end of this function throws what the task threw.
  state->is_taken_.store(true);
  turn_until_ended(state);
  return state->take();
}

}  // namespace manyworlds::inline v0
