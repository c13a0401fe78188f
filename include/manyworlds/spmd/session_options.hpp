// Session options: what the workers of a session are, and the limits of its calls.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string_view>

#include "manyworlds/inline_text.hpp"
#include "manyworlds/time.hpp"
#include "manyworlds/world/options.hpp"

namespace manyworlds::inline v0 {

class function_table;
class process_options;

/// What a session does when it finds a worker stuck: it has not ended, within `grace`, a
/// call that it was told to end.
enum class stuck_worker : unsigned char {
  tell,  ///< the calls of its meshes fail, until it has ended that one
  kill   ///< it is killed, and lost. A thread cannot be: it is told
};

/// How often a worker that was lost is replaced unasked: `times` within each `per`. The
/// first replacement comes at once; one that follows within five seconds waits for 50 ms,
/// and each further one twice as long, up to five seconds.
///
///     mw::session_options limits;
///     limits.respawn = {.times = 3, .per = 10min};
///     const mw::threads four(4, functions, limits);
struct respawn_budget {
  std::size_t times = 0;                   ///< none: it is not
  duration per = std::chrono::minutes(1);  ///< the last so long
};

/// Limits of a session, and what moves its data. It is trivially destructible, so that it
/// can be written in an awaited expression.
///
///     mw::session_options gpus;
///     gpus.backend = mw::backend_kind::nccl;
///     const mw::processes four{.workers = 4, .program = "./worker", .limits = gpus};
struct session_options {
  /// Stands in errors and dumps, and before the names of its worlds.
  inline_text<30> name = "session";
  /// All workers must be there after this time.
  duration start = std::chrono::seconds(60);
  /// The time that a worker has to end a call that was given up.
  duration grace = std::chrono::seconds(5);
  stuck_worker on_stuck = stuck_worker::tell;
  /// A worker that is silent for this long is suspect ...
  duration suspect_after = std::chrono::seconds(1);
  /// ... and lost after this: it is killed where this process has started it.
  duration lost_after = std::chrono::seconds(5);
  /// Lost workers come back only by `session::respawn`, unless this allows some.
  respawn_budget respawn = {};
  /// How long `session::alert` keeps the workers from sleeping.
  duration awake = std::chrono::milliseconds(1);
  /// Commands that a worker may have before it has ended them, in number ...
  std::size_t window = 64;
  /// ... and in bytes. A larger one is sent alone.
  std::size_t window_bytes = std::size_t{1} << 20;
  /// What moves the data of its meshes' worlds. With `nccl` each worker has a CUDA device
  /// and a stream there (`worker::place`, `worker::stream`), and each of its meshes a
  /// communicator. The session does not start where a worker cannot have its device.
  backend_kind backend = backend_kind::host;
  /// With `nccl`, the devices of the workers of a host, or of a node, in their order, as
  /// "0,1,2,3": the numbers that a worker's process gives them. By default the k-th has
  /// device k, and one that sees no such device is refused: NCCL wants a device for each
  /// rank. Name a device twice for workers that share it, and set NCCL_HOSTID differently
  /// in their processes; `threads` cannot share one.
  inline_text<63> devices = {};
};

/// Workers that are threads of this process, each with a runtime of its own.
///
///     const mw::threads four(4, functions, {.name = "tp", .grace = 1s});
///     mw::session tp = co_await mw::session::start(rt, four);
///     co_await tp.close();
///
/// Lifetime: the table outlives the session.
class threads {
 public:
  threads(int workers, const function_table& functions,
          session_options limits = {}) noexcept
      : workers_(workers), functions_(&functions), limits_(limits) {}

  [[nodiscard]] int workers() const noexcept { return workers_; }
  [[nodiscard]] const function_table& functions() const noexcept { return *functions_; }
  [[nodiscard]] const session_options& limits() const noexcept { return limits_; }

 private:
  int workers_;
  const function_table* functions_;
  session_options limits_;
};

/// Puts worker 0 of a session of processes into the controller's process, as a thread
/// with a runtime of its own and these functions.
///
///     mw::session tp = co_await mw::session::start(
///         rt, mw::processes{.workers = 4, .program = "./worker",
///                           .worker0 = mw::in_controller(functions)});
///     mw::tensor& logits = co_await tp.local(output);
///
/// What crashes it crashes the controller. It cannot be killed: a worker that is stuck is
/// told of, and one that is replaced ends when its function does. Lifetime: the table
/// outlives the session.
class in_controller {
 public:
  explicit in_controller(const function_table& functions) noexcept
      : functions_(&functions) {}

  [[nodiscard]] const function_table& functions() const noexcept { return *functions_; }

 private:
  const function_table* functions_;
};

/// Describes workers that are processes of this machine: each runs `program`, which calls
/// `worker_main`.
///
///     mw::session tp = co_await mw::session::start(
///         rt, mw::processes{.workers = 4, .program = "./worker"});
///     co_await tp.close();
///
/// It is trivially destructible, so that it can be written in an awaited expression.
struct processes {
  int workers = 1;
  /// The path of the program. Give `how` for its arguments, or a longer path.
  inline_text<255> program = {};
  /// Says more about how it is started, in place of `program`: arguments, environment,
  /// output, limits. What it says of restarts does not count. Lifetime: until the session
  /// has ended.
  const process_options* how = nullptr;
  session_options limits = {};
  /// Worker 0 has a process of its own, so that its segmentation fault is not the
  /// controller's, unless this puts it there.
  std::optional<in_controller> worker0 = std::nullopt;
};

/// Describes workers on several machines, `workers_per_node` on each: worker k is on node
/// k / `workers_per_node`. On each of these `mwnode` runs, which joins the session here
/// and starts its program for each of its workers.
///
///     mw::runtime rt({.listen = "10.0.0.1:0", .secret = secret});
///     // node 0: mwnode 10.0.0.1:7070 --node 0 --secret-file FILE -- ./worker
///     // node 1: mwnode 10.0.0.1:7070 --node 1 --secret-file FILE -- ./worker
///     mw::session tp = co_await mw::session::start(
///         rt, mw::nodes{.count = 2, .workers_per_node = 4, .listen = "10.0.0.1:7070"});
///
/// What a call gives to several workers of a node crosses the network once. The runtime's
/// secret is asked of nodes, too. Agents may come before the controller or after it,
/// within `session_options::start`; one that is lost takes its workers along, and another
/// of that node may join in its place, for `session::respawn`. When the controller ends,
/// agents and workers do.
///
/// It is trivially destructible, so that it can be written in an awaited expression.
struct nodes {
  int count = 1;
  int workers_per_node = 1;
  /// Where agents join: an address of this machine that they reach, with a port.
  inline_text<63> listen = "127.0.0.1:0";
  session_options limits = {};
};

}  // namespace manyworlds::inline v0
