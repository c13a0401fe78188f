// Launch agent: starts the workers of a job on this node, watches them, and starts again
// what fails.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/inline_text.hpp"
#include "manyworlds/launch/launch_context.hpp"
#include "manyworlds/launch/rendezvous.hpp"
#include "manyworlds/launch/worker_failure.hpp"
#include "manyworlds/time.hpp"
#include "manyworlds/world/runtime.hpp"

namespace manyworlds::inline v0 {

class process_guard;

/// What is started again when a worker fails.
enum class restart_scope : std::uint8_t {
  group,   ///< all workers, with a new store, as torchrun does
  worker,  ///< that worker alone: it gets its rank back, and the others go on; a node
           ///< that comes for a lost one gets the ranks of that
};

/// On which CPUs a worker runs, of those that this process may use. Near which NUMA node
/// that is follows from the worker's GPU; without GPUs the workers are spread over the
/// nodes in order.
enum class numa_binding : std::uint8_t {
  none,          ///< on all
  node,          ///< on those of its NUMA node
  socket,        ///< on those of all NUMA nodes of its processor
  exclusive,     ///< on cores of its NUMA node that no other worker has
  core_complex,  ///< on cores of its NUMA node that share a cache
};

/// Where the output and the errors of a worker go.
struct worker_streams {
  bool output_to_file = false;
  bool errors_to_file = false;
  bool output_to_console = true;
  bool errors_to_console = true;
};

/// Describes a job, as one of its nodes has it. All nodes have the same scope and
/// numbers of restarts.
struct launch_options {
  /// The program of every worker, and its arguments. `${local_rank}` within an argument
  /// stands for the worker's number on this node.
  std::string program;
  std::vector<std::string> arguments = {};
  /// Variables that all workers get beside the starter's own. Those of `launch_context`
  /// are set in any case.
  launch_variables variables = {};
  /// The variables of this process, which the workers inherit: some of theirs depend on
  /// them, such as OMP_NUM_THREADS. The library reads no environment.
  launch_variables inherited = {};
  int workers = 1;
  /// How the nodes of the job meet; its run id is not used. As it is, this node is the
  /// whole job. Of several nodes the runtime must be reachable by the others.
  rendezvous_options meeting = {};
  /// The numeric address at which the workers of all nodes reach a store that this node
  /// serves.
  std::string host = "127.0.0.1";
  std::string role = "default";
  /// Names the run: 1 to 40 bytes, letters, digits, `-`, `_` and `.`.
  std::string run_id = "none";

  restart_scope scope = restart_scope::group;
  /// Restarts of workers and of groups together, and of lost nodes, in the whole job.
  /// That a node comes, or drains, is none.
  std::size_t max_restarts = 0;
  /// Those of one rank, under `restart_scope::worker`.
  std::optional<std::size_t> max_restarts_per_rank = std::nullopt;
  /// Restarts are counted for this time; without it for the whole run.
  std::optional<duration> restart_window = std::nullopt;
  /// From SIGTERM to SIGKILL, whatever the cause.
  duration grace = std::chrono::seconds(30);
  /// How long a node waits for the workers of the others when all of its own have exited
  /// with 0.
  /// The node that serves the store waits for as long as they take.
  duration exit_barrier = std::chrono::seconds(300);

  /// A worker that stands still for this time is ended as stuck; without it none is.
  std::optional<duration> hang_timeout = std::nullopt;
  /// A worker that is in uninterruptible sleep for this time is ended as stuck, also
  /// without a `hang_timeout`.
  std::optional<duration> kernel_limit = std::nullopt;
  /// If a worker was replaced and its worlds are not up again within this time, all are
  /// started again.
  duration worlds_up_limit = std::chrono::seconds(30);

  /// The store of each attempt is served at this port; 0 chooses one.
  std::uint16_t store_port = 0;
  /// Each worker sees its one GPU as device 0.
  bool virtual_local_rank = false;
  /// The folder in which each run makes one of its own for the workers' files. Empty: no
  /// files, and no error files.
  std::string log_folder = {};
  /// Says where a worker's streams go. Empty: to this process's own.
  std::function<worker_streams(int rank, int local_rank)> streams = {};
  /// Returns what stands before each line that comes from a file to the console.
  std::function<std::string(int rank, int local_rank)> prefix = {};
  /// Lines that come from a file to the console and contain one of these texts go also
  /// into filtered_stdout.log, or filtered_stderr.log, of the attempt.
  std::vector<std::string> output_filters = {};
  std::vector<std::string> errors_filters = {};
  /// What has been started by a worker that exited with 0 lives on.
  bool keep_descendants = false;
  /// On which CPUs each worker runs.
  numa_binding binding = numa_binding::none;
  /// The sinks of what is recorded of the job: see `job_sink`.
  std::string event_sink = "null";
  std::string metric_sink = "null";
  /// Where probes are answered by HTTP whether the job is well: `PORT`, on loopback, or
  /// `ADDRESS:PORT`. Empty: nowhere.
  std::string health_endpoint = {};
  /// Takes what workers give by `launch_context::give_result`.
  bool takes_results = false;
  /// Takes a sentence on what the agent does, on the reactor.
  std::function<void(std::string_view line)> told = {};
  /// Ends all workers when this process is killed. Lifetime: it outlives the runtime.
  process_guard* guard = nullptr;
};

/// How a job has ended.
struct launch_result {
  /// Whether every worker has exited with 0.
  bool is_success = false;
  /// The signal by which it was ended; 0 if it was not.
  int signal = 0;
  /// The failures that ended it, of all nodes; the first is the root cause.
  std::vector<worker_failure> failures;
  std::size_t restarts = 0;
  /// What has ended it, if no worker did: a sentence, such as that of a
  /// `rendezvous_error`.
  std::string cause = {};
  /// What the workers have given, by their ranks; empty unless the job has succeeded and
  /// `launch_options::takes_results`.
  std::vector<std::string> results = {};
};

/// Starts workers on this node, watches them, and starts again what fails. Each node of a
/// job has one; they meet by a `rendezvous`.
///
///     mw::launch_options job{.program = "./serving", .workers = 4};
///     job.scope = mw::restart_scope::worker;
///     job.max_restarts = 10;
///     mw::launch_agent agent(rt, job);
///     const mw::launch_result end = co_await agent.run();
///
/// A worker gets the variables that torchrun sets, and our own beside them, so that
/// `launch_context` finds its place. Each attempt has a store of its own: after a restart
/// of the group no key of the dead can be read. A worker that is started again alone
/// keeps its rank and the store; MANYWORLDS_INCARNATION is one higher, and its worlds
/// form again with those that live.
///
/// What cannot be mended goes up: a rank without restarts left is a restart of the group,
/// and that is the end of the job once there are none. Workers are ended by SIGTERM and,
/// after the grace, SIGKILL, with all that they have started.
///
/// All agents hear of a failure in one message through the rendezvous' coordinator. The
/// agent of the round's first node decides: it grants restarts, and serves the store of
/// the attempt. If it is lost, so is that store, and the group starts again.
///
/// Thread: the runtime's reactor. Lifetime: the runtime outlives it.
class launch_agent {
 public:
  /// Errors: std::invalid_argument naming an option that cannot be meant;
  /// rendezvous_error (`bad_options`), and what the maker of its backend throws.
  launch_agent(runtime& rt, launch_options options);
  launch_agent(const launch_agent&) = delete;
  launch_agent& operator=(const launch_agent&) = delete;
  ~launch_agent();

  /// Runs the job to its end. Precondition: called once. A cancellation kills the
  /// workers. Errors: none of its own; what has ended the job is in its result.
  task<launch_result> run();
  /// Sends the signal to all workers of this node, ends them after the grace, and leaves
  /// the job. The second call kills them at once, and drops what a console that is stuck
  /// has not taken. Before `run` it lets nothing start.
  void end(int signal);
  /// Returns the process of a rank of this node; 0 if none runs.
  [[nodiscard]] pid_t pid_of(int rank) const noexcept;

 private:
  class core;
  std::unique_ptr<core> core_;
};

/// A job that `launch` ran has failed. Its text names the first cause.
class MANYWORLDS_EXPORT job_error : public std::exception {
 public:
  explicit job_error(launch_result how);
  [[nodiscard]] const char* what() const noexcept override { return text_->c_str(); }
  [[nodiscard]] const launch_result& result() const noexcept { return *result_; }

 private:
  std::shared_ptr<const launch_result> result_;
  std::shared_ptr<const std::string> text_;
};

/// Runs a job to its end, and returns what each worker has given, by its rank.
///
///     mw::launch_options job{.program = "./train", .workers = 4};
///     const std::vector<std::string> losses = co_await mw::launch(rt, job);
///
/// The first worker that fails ends the others, unless restarts are left. Thread: the
/// runtime's reactor. A cancellation kills the workers. Errors: job_error; those of
/// `launch_agent`'s constructor.
task<std::vector<std::string>> launch(runtime& rt, launch_options options);

}  // namespace manyworlds::inline v0
