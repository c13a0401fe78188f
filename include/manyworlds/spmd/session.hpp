// Session: one program that drives n workers.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/spmd/call_error.hpp"
#include "manyworlds/spmd/mesh.hpp"
#include "manyworlds/spmd/session_event.hpp"
#include "manyworlds/spmd/session_options.hpp"

namespace manyworlds::inline v0 {

class runtime;

/// Where a worker is in its life.
enum class worker_state : std::uint8_t {
  starting,
  ready,
  lost,  ///< it has ended, or was silent for too long; `respawn` replaces it
};

/// Names workers by their ids, in the order of their ranks: `{0, 2}`, or a vector.
class worker_list {
 public:
  // No initializer_list: g++ 12.2 does not compile its array in an awaited call.
  template <std::convertible_to<int>... Workers>
  requires(sizeof...(Workers) > 0) worker_list(Workers... workers)
      : ids_(sizeof...(Workers)) {
    std::size_t at = 0;
    ((ids_[at++] = static_cast<int>(workers)), ...);
  }
  worker_list(std::vector<int> workers) noexcept : ids_(std::move(workers)) {}

  /// Returns the ids.
  [[nodiscard]] const std::vector<int>& ids() const noexcept { return ids_; }

 private:
  std::vector<int> ids_;
};

/// One worker, as the controller knows it.
struct session_worker {
  int id = 0;
  /// How many there were of this id: 1 for the first.
  std::uint64_t incarnation = 1;
  worker_state state = worker_state::starting;
  /// The number of its process, on its own machine; 0 for a thread.
  std::int64_t pid = 0;
  /// Says for people how the last one was lost; empty if none was.
  std::string loss;
  /// Names the call that it does not end although it was told to; empty if there is none.
  std::string stuck_in;
};

/// One program, the controller, that drives n workers through calls. A session is its
/// mesh of all of them.
///
///     mw::session tp = co_await mw::session::start(rt, mw::threads(4, functions));
///     auto weights = co_await tp.call(fetch, path, 0).replayable();
///     auto input = co_await tp.put(prompt);
///     auto output = co_await tp.issue(mlp, weights, input);
///     std::vector<int> tokens = co_await tp.call(pick, output).from(0).within(2s);
///
/// Calls go to the workers over a world of two for each, in order; the workers exchange
/// their data over the worlds of their meshes. A call that fails on one worker is ended
/// on all: what waits is cancelled, and later calls are held until that is settled. A
/// worker that dies or falls silent fails the calls that need it, and no others; the
/// controller goes on, and `respawn` replaces the worker.
///
/// Dropping it ends all workers: their calls are cancelled, and a process that does not
/// end within a second is killed. Thread: its runtime's reactor. Lifetime: the runtime
/// outlives it.
class session : public mesh {
 public:
  /// Makes a handle without a session, like one that was moved from.
  session() noexcept = default;
  session(session&& other) noexcept = default;
  session& operator=(session&& other) noexcept;
  session(const session&) = delete;
  session& operator=(const session&) = delete;
  ~session();

  /// Starts workers, and ends when all are there. Errors: std::invalid_argument without
  /// workers; world_error (`not_joined`) naming those that are not there in time, or how
  /// they ended.
  [[nodiscard]] static task<session> start(runtime& rt, threads how);
  [[nodiscard]] static task<session> start(runtime& rt, processes how);
  /// Errors: also std::invalid_argument where nodes beyond this machine join, and the
  /// runtime listens on loopback, or has no secret.
  [[nodiscard]] static task<session> start(runtime& rt, nodes how);

  /// Names some of its workers, by their ids in the order of their ranks. They form a
  /// world of their own at the first call that is not `alone`. Errors:
  /// std::invalid_argument for no worker, one that is not there, or one twice.
  [[nodiscard]] manyworlds::mesh mesh(worker_list workers) const;
  /// Divides the workers into meshes of as many: 0 to n - 1, n to 2n - 1 ... Errors:
  /// std::invalid_argument unless `parts` divides their number.
  [[nodiscard]] std::vector<manyworlds::mesh> split(int parts) const;

  /// Names the workers that are there: all, without those that are lost. Errors:
  /// std::invalid_argument if there is none.
  [[nodiscard]] manyworlds::mesh shrink() const;

  /// Replaces a lost worker, or ends one that is there first. The next incarnation runs
  /// again what is `replayable`, in order; what else it held is lost, until calls
  /// `.on(worker).into(ref)` make it again. Ends when it is there and joined its meshes.
  /// Those that ask for one worker at the same time share its replacement.
  /// Errors: world_error (`not_joined`); call_error of a replayed call;
  /// std::invalid_argument for a worker that is not there.
  [[nodiscard]] task<void> respawn(int worker) const;

  /// Gives what a register holds on worker 0, without a copy, if that worker is a thread
  /// of this process: with `threads`, and with `processes::worker0`. It is a call on that
  /// worker, behind all that was issued to it before.
  ///
  ///     mw::tensor& logits = co_await tp.local(output);
  ///     logits.as<float>()[0] = 0;
  ///     auto tokens = co_await tp.call(pick, output).from(0);  // it sees the change
  ///
  /// Thread: the worker has one of its own. The value is the caller's until the next call
  /// that takes or fills the register is issued, and again when that has ended.
  /// Lifetime: it lives until its dref is dropped, `local` gives another of that dref, or
  /// the session ends; also if the worker is lost, or fills the register with another.
  ///
  /// Errors: std::invalid_argument, here, for a dref that refers to nothing or belongs to
  /// another session. At the await those of `mesh`. `invalid_argument`: worker 0 is in
  /// another process, or has no such register. `handler_failed`: what it holds is no T.
  /// `register_lost`: also if the dref was dropped before the end.
  template <class T>
  [[nodiscard]] detail::local_awaitable<T> local(
      const dref<T>& of, source_position where = source_position()) const {
    return detail::local_awaitable<T>(detail::local_request(
        core(), detail::access::core(of), detail::type_token::of<T>(), where));
  }

  /// Describes the workers, by id. Errors: std::invalid_argument for a handle without a
  /// session, as of all others.
  [[nodiscard]] std::vector<session_worker> describe() const;
  /// Describes one. Errors: std::invalid_argument for a worker that is not there.
  [[nodiscard]] session_worker describe(int worker) const;

  /// Subscribes to what happens from now on. Events that are not taken in time are
  /// dropped, the oldest first. Errors: as `describe`.
  [[nodiscard]] session_events events(std::size_t capacity = 256) const;

  /// Wakes the workers that sleep, so that the calls of a step which comes soon find them
  /// awake: a thread that sleeps takes 30 to 80 us to wake. They look out for commands
  /// for `session_options::awake`, at the cost of their CPUs. Errors: as `describe`;
  /// world_error (`invalid_argument`) elsewhere than on the session's reactor.
  void alert() const;

  /// Ends all workers in order, after what was issued to them. Errors: none.
  [[nodiscard]] task<void> close();

 private:
  friend struct detail::access;
  explicit session(std::shared_ptr<detail::session_core> core);
};

}  // namespace manyworlds::inline v0
