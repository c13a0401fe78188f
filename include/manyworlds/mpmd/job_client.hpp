// Job client: starts a role graph, asks how it stands, waits for its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/mpmd/job_graph.hpp"
#include "manyworlds/mpmd/job_placement.hpp"
#include "manyworlds/world/runtime.hpp"

namespace manyworlds::inline v0 {

namespace detail {
class job_client_core;
}  // namespace detail

/// How a job stands, as its master told last.
struct job_status {
  /// How an instance stands.
  struct instance {
    instance_id id;
    std::string node;  ///< where it runs, or ran last
    /// "starting", "running", "ready" or "ending" while a process of it is there;
    /// otherwise "waiting", "ordered" until its node has told of it, or "ended".
    std::string state;
    std::uint64_t incarnation = 0;
    std::int64_t pid = 0;       ///< on its node
    std::uint64_t steps = 0;    ///< what it said last (`role_context::progress`)
    std::size_t failures = 0;   ///< charged to it, within the window of its budget
    std::string last_end = {};  ///< how its last incarnation ended; for people
  };

  /// "starting", "running", "stopping" or "stopped"; empty before a master has told.
  std::string stage;
  std::uint64_t term = 0;  ///< of the master that told it
  int exit_code = 0;       ///< once it is stopped
  std::string why;         ///< it ends; for people
  std::string waits_for;   ///< what keeps it from going on; for people
  std::uint64_t job_restarts = 0;
  std::vector<instance> instances;

  [[nodiscard]] bool is_over() const noexcept { return stage == "stopped"; }
};

/// Is a client of one job, which runs without it.
///
///     mw::job_graph g("serving");
///     g.role("decode").run({"./serving", "decode"}).count(1, 2, 4);
///     mw::job_client job = co_await mw::job_client::submit(rt, g);
///     const mw::job_status end = co_await job.until_over();
///     std::printf("%d: %s\n", end.exit_code, end.why.c_str());
///
/// Thread: the runtime's reactor. Lifetime: the runtime outlives it.
class job_client {
 public:
  /// Where it finds the job, and how it starts one. No aggregate, so that an awaited
  /// expression may make one.
  struct options {
    options() = default;
    /// Where jobs of this machine leave what finds them, as `mwgraph --folder`. Empty:
    /// XDG_RUNTIME_DIR/manyworlds, or /tmp/manyworlds-UID.
    std::string folder = {};
    /// Its meeting store, as "10.0.0.1:7070" or "etcd://10.0.0.1:2379", if the job was
    /// started on another machine; and the file with its secret.
    std::string store = {};
    std::string secret_file = {};
    /// For `submit`: the program that runs jobs, looked for along PATH, and how many
    /// agents it waits for.
    std::string program = "mwgraph";
    std::size_t nodes = 1;
  };

  /// Starts the job on this machine, as `mwgraph start` does: with a supervisor, a master
  /// and an agent of its own, which live on when this process ends. Errors: graph_error
  /// with all objections; std::runtime_error with what the program said, as where a job
  /// of that name runs already.
  [[nodiscard]] static task<job_client> submit(runtime& rt, job_graph graph);
  /// Does the same, as `how` says. Errors: as above.
  [[nodiscard]] static task<job_client> submit(runtime& rt, job_graph graph, options how);
  /// Finds a job that was started. Errors: std::runtime_error if there is none.
  job_client(runtime& rt, std::string job);
  /// Does the same, as `how` says. Errors: as above.
  job_client(runtime& rt, std::string job, options how);
  job_client(job_client&&) noexcept;
  job_client& operator=(job_client&&) noexcept;
  ~job_client();

  /// Returns the job's name.
  [[nodiscard]] const std::string& job() const noexcept;
  /// Returns how it stands. Errors: store_error if its store does not answer.
  [[nodiscard]] task<job_status> status();
  /// Waits until it is over, and returns how it has ended. Errors: as above; of a job on
  /// other machines once its store has not answered for a minute.
  [[nodiscard]] task<job_status> until_over();
  /// Tells it to end; `until_over` waits for that. Errors: as above.
  [[nodiscard]] task<void> stop(std::string why = "its client asked for it");

 private:
  std::unique_ptr<detail::job_client_core> core_;
};

}  // namespace manyworlds::inline v0
