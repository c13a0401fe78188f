// Launch context: what the launcher of this process has told it, whichever launcher that
// is.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/launch/job_reports.hpp"
#include "manyworlds/launch/launch_error.hpp"
#include "manyworlds/world/options.hpp"
#include "manyworlds/world/runtime.hpp"

namespace manyworlds::inline v0 {

namespace detail {
class pmix_session;
}  // namespace detail

/// Names what started the processes of a job.
enum class launcher_kind : std::uint8_t {
  none,      ///< nothing did: this process is alone
  by_hand,   ///< RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, without a launcher's name
  torchrun,  ///< PyTorch's
  mwrun,     ///< our own
  slurm,     ///< srun
  open_mpi,  ///< mpirun of Open MPI
  pmix,      ///< another launcher that serves PMIx, such as prterun
  hydra,     ///< mpiexec of MPICH or Intel MPI
};

/// Returns the name of the enumerator.
[[nodiscard]] std::string_view name_of(launcher_kind kind) noexcept;

/// Where the store of a job is.
enum class store_place : std::uint8_t {
  rank_zero,  ///< rank 0 hosts it at `launch_context::store`
  launcher,   ///< the launcher, or another process, serves it there
  published,  ///< rank 0 hosts it at a port that it chooses, and tells the others by PMIx
  own,        ///< this process is alone and hosts it for itself
};

/// The variables of an environment by name.
using launch_variables = std::map<std::string, std::string, std::less<>>;

/// Chooses what `launch_context::run` does when the process shall end.
struct job_options {
  /// After SIGTERM or SIGINT the task may go on for this time before it is cancelled.
  duration drain = duration::zero();
  /// The exit code after such a signal; negative means 128 and the signal's number.
  int code_of_signal = -1;
  /// The exit code after an exception.
  int code_of_error = 1;
};

/// Describes the place of this process in its job, and starts from there.
///
///     const auto job = mw::launch_context::from_environment();
///     mw::runtime rt(job.runtime());
///     mw::launch_store store(rt, job);
///     const int exit_code = job.run(rt, serve(rt, store));  // job.world("main") in it
///
/// The same program runs under torchrun, mwrun, srun, mpirun, mpiexec of MPICH, with RANK
/// and the like set by hand, and alone. `src/launch/README.md` lists the variables.
///
/// CUDA_VISIBLE_DEVICES and the CPUs that the launcher has bound are left as they are.
struct launch_context {
  launcher_kind launcher = launcher_kind::none;
  rank_t rank = 0;
  rank_t size = 1;
  /// The same among the processes of this machine. By hand, where it is not said, all are
  /// on this machine if the store is on loopback; otherwise each has a machine of its
  /// own.
  rank_t local_rank = 0;
  rank_t local_size = 1;
  /// The number of this machine and of all; of torchrun, those of its agents.
  rank_t node_rank = 0;
  rank_t node_count = 1;
  std::string role = "default";
  rank_t role_rank = 0;
  rank_t role_size = 1;
  /// Names the job; all attempts of it have the same.
  std::string run_id = "none";
  /// Counts the starts of all processes together. torchrun counts them by node, so that
  /// two members may differ.
  int attempt = 0;
  /// Whether all members were told the same `attempt`, another one at each start.
  bool is_attempt_agreed = false;
  /// The most restarts that the launcher allows; 0 where it does not say.
  int max_restarts = 0;
  /// Counts the processes that have held this rank within the attempt.
  int incarnation = 0;
  store_place place = store_place::own;
  /// The store's "host:port". Port 0: rank 0 chooses one.
  std::string store = "127.0.0.1:0";
  /// The file with the job's shared secret; empty if there is none.
  std::string secret_file;
  /// Whether the network is trusted, so that no secret is needed beyond loopback.
  bool insecure = false;
  /// The network interface, or the numeric address, on which peers reach this process.
  /// Empty: the one that leads to the store.
  std::string interface;
  /// The file for the error of this process; empty if there is none.
  std::string error_file;
  /// The file for the result of this process; empty if the launcher takes none.
  std::string result_file;
  /// The entries of CUDA_VISIBLE_DEVICES; nothing if that is not set.
  std::optional<std::vector<std::string>> visible_devices;
  /// The connection to PMIx; null where it is not used.
  std::shared_ptr<detail::pmix_session> pmix;
  /// The connection to the agent of mwrun; null without one.
  std::shared_ptr<detail::agent_reporter> agent;

  /// Reads the environment of this process; it is the only function of the library that
  /// does. Under Open MPI and the like it also asks libpmix, if it can be opened.
  /// Thread: call it in main before other threads start. Errors: launch_error naming the
  /// variable that is missing, makes no sense or contradicts another.
  [[nodiscard]] static launch_context from_environment();
  /// Reads these variables alone. Facts that PMIx knows may be given under PMIx's own
  /// keys, such as "pmix.job.size". Errors: those of `from_environment`.
  [[nodiscard]] static launch_context from(const launch_variables& variables);

  /// Returns whether all processes of the job are known to be on this machine.
  [[nodiscard]] bool is_local() const noexcept { return local_size == size; }
  /// Returns the CUDA device of this process: the local rank picks among the visible
  /// ones, in turn. -1 if CUDA_VISIBLE_DEVICES names none.
  [[nodiscard]] int device() const noexcept;
  /// Returns "rank 1 of 4 (torchrun, run none)", for people.
  [[nodiscard]] std::string text() const;

  /// Returns options of a world of all processes of the job, with their ranks.
  [[nodiscard]] world_options world(world_name name) const;
  /// Returns options of a runtime that the other members reach: it listens on loopback if
  /// all are here, otherwise on the interface that leads to the store. It has the job's
  /// secret. Looks up the store's name for up to 10 s. Errors: launch_error if the secret
  /// file cannot be used or there is none beyond loopback, or for an interface or a name
  /// without an address.
  [[nodiscard]] runtime_options runtime() const;
  /// Reads the job's secret; empty if there is no file. Errors: launch_error unless the
  /// file is a regular one that only its owner, who is this process's user or root, can
  /// read.
  [[nodiscard]] secret_text secret() const;

  /// Runs the task on the calling thread to its end, and returns the exit code of the
  /// process. An exception gives one line on standard error and `record_error`. SIGTERM
  /// and SIGINT cancel the task, after the drain; a second one does so at once. The
  /// runtime is stopped after a signal, an exception or another code than 0.
  ///
  /// The two signals are blocked on the calling thread meanwhile. Where a thread of the
  /// program does not block them they are left alone, and a line says so. Precondition:
  /// no task was started on the runtime before; spawn it in a scope of this one. Errors:
  /// none, since every exception becomes an exit code.
  [[nodiscard]] int run(class runtime& rt, task<void> work,
                        job_options options = {}) const;
  /// Does the same for a task that gives the exit code. Errors: none.
  [[nodiscard]] int run(class runtime& rt, task<int> work,
                        job_options options = {}) const;

  // What follows goes to the agent that has started this process: `run` also tells it of
  // the turns of the reactor and of the worlds. Without an agent it does nothing. It
  // never waits: what an agent that is slow does not take is dropped. Thread: any.
  /// Says how far the work is. An agent with a limit for hangs ends a worker that waits
  /// for no other member while this stands still.
  void progress(std::uint64_t step) const noexcept;
  /// Limits the time until the object is destroyed: the agent then ends this process.
  /// `what` names it in the agent's message. Errors: std::bad_alloc.
  [[nodiscard]] job_deadline expires(duration limit,
                                     std::string_view what = "deadline") const;
  /// Reports that something happened. Of the fields 32 are kept, and 1 KiB of each.
  /// Errors: std::bad_alloc.
  void event(std::string_view name, const job_fields& fields = {}) const;
  /// Asks for a restart of all workers, which is counted: this application cannot go on
  /// with the members that were replaced. The agent ends this process, too. `why` is
  /// told, and is the root cause if no restart is left. Errors: std::bad_alloc.
  void request_restart(std::string_view why) const;
  /// Reports a value. Errors: std::bad_alloc.
  void metric(std::string_view name, double value) const;
  /// Reports how long the object lived. Errors: std::bad_alloc.
  [[nodiscard]] job_timer timed(std::string_view name) const;

  /// Writes the error file that torchrun and mwrun read, if the launcher named one. They
  /// show `call_stack` as the traceback. Without a code it writes the short form, of
  /// message and time. Returns false if the file cannot be written.
  bool record_error(std::string_view message, std::optional<int> code = std::nullopt,
                    std::string_view call_stack = {}) const noexcept;
  /// Does the same for an exception, with its type and those nested in it.
  bool record_error(const std::exception_ptr& error, int code = 1) const noexcept;
  /// Gives the launcher this process's result, of at most 64 KiB: `launch` ends with it
  /// if the process exits with 0. A later result replaces it. Returns false if it is too
  /// long, or cannot be written. Without a launcher that takes it, it does nothing.
  bool give_result(std::string_view result) const noexcept;
};

}  // namespace manyworlds::inline v0
