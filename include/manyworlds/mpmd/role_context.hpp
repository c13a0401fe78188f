// Role context: the place of a process in a role graph, and the worlds of its edges.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/launch/launch_context.hpp"
#include "manyworlds/mpmd/job_graph.hpp"
#include "manyworlds/mpmd/job_placement.hpp"
#include "manyworlds/mpmd/role_group.hpp"
#include "manyworlds/mpmd/role_methods.hpp"
#include "manyworlds/spmd/function_table.hpp"
#include "manyworlds/spmd/session.hpp"
#include "manyworlds/store/store.hpp"
#include "manyworlds/world/runtime.hpp"
#include "manyworlds/world/world.hpp"

namespace manyworlds::inline v0 {

namespace detail {
class role_core;
}  // namespace detail

/// What became of a peer at an edge.
enum class peer_event_kind : std::uint8_t {
  peer_came,  ///< the edge's world is up for the first time
  peer_lost,  ///< it broke, or the peer left
  peer_back,  ///< it is up again, perhaps with another incarnation
};

[[nodiscard]] std::string_view name_of(peer_event_kind kind) noexcept;

/// One change at an edge.
struct peer_event {
  peer_event_kind kind = peer_event_kind::peer_came;
  std::string edge;
  /// The peer; of an edge that is a group, its role is empty: one of its members.
  instance_id peer;
  std::uint64_t epoch = 0;
  /// Of `peer_lost`: why, for people.
  std::string why;
};

/// The place of this process in its job, as its agent gave it.
///
///     mw::role_context self;
///     mw::runtime rt(self.runtime());
///     const auto body = [&](mw::scope& s) -> mw::task<void> {
///       s.spawn(self.each("kv", edge));
///       self.ready();
///       co_await self.leaving();
///     };
///     const int exit_code = self.run(rt, body);
///
/// It is a `launch_context`, in which the instances of the role are the ranks. Master,
/// agent and store may go and come again; the worlds of its edges do not notice.
///
/// Thread: made in main; all else within `run`, on the runtime's reactor, but `ready` and
/// `progress`, which any may call. Lifetime: it outlives the tasks it gave. Errors:
/// std::logic_error outside of `run`, and for an edge that this role has not.
class role_context : public launch_context {
 public:
  /// Takes one world of an edge. It is called anew for each epoch.
  using world_body = std::function<task<void>(class world&)>;
  /// Does the same, and is told which peer it is with.
  using peer_body = std::function<task<void>(class world&, const instance_id&)>;
  /// The whole program, with a scope of its own.
  using role_body = std::function<task<void>(scope&)>;
  /// Says whether this role, as a controller, copes with the loss of an instance: with
  /// its end, with a limit that it has not kept, or with the loss of its node.
  using failover_handler = std::function<task<bool>(instance_id)>;

  /// Reads the environment of this process. Thread: call it in main before other threads
  /// start. Errors: launch_error naming the variable that is missing or makes no sense.
  role_context();
  /// Reads these variables alone. Errors: as above.
  explicit role_context(const launch_variables& variables);

  [[nodiscard]] const instance_id& instance() const noexcept;
  /// Returns the name of the node that it runs on.
  [[nodiscard]] const std::string& node() const noexcept;
  /// Returns the job's graph. Precondition: within `run`.
  [[nodiscard]] const job_graph& graph() const;

  /// Joins the agent, runs `body` to its end, cancels what its scope still runs, and
  /// returns the exit code; error file, SIGTERM and SIGINT as in `launch_context::run`.
  [[nodiscard]] int run(class runtime& rt, role_body body, job_options options = {});
  /// Does the same on a runtime that runs already, such as a simulated one, with the
  /// job's meeting store. Errors: what
  /// `body` threw; std::runtime_error if the agent refuses this process.
  [[nodiscard]] task<void> run_in(class runtime& rt, class store& meeting,
                                  role_body body);

  /// Keeps a world of two with each peer of a bulk edge (`pairs` or `aligned`), as peers
  /// come, go and come again, and runs `body` in each, side by side. The instance of
  /// `from` is rank 0; of one role with itself, the lower index. A body that returns has
  /// done with its peer for good, also where that one comes again. Lasts until all have
  /// returned, or it is cancelled; an exception of a body that is not of its world ends
  /// it (`keep`).
  [[nodiscard]] task<void> each(std::string edge, world_body body);
  [[nodiscard]] task<void> each(std::string edge, peer_body body);
  /// Keeps the world of a bulk edge that is a `group`: ranks are those of `from` by
  /// index, then those of `to`. Ends when the body returns.
  [[nodiscard]] task<void> world(std::string edge, world_body body);
  using launch_context::world;
  /// Answers the calls of all instances of `from` at a calls edge of which this role is
  /// `to`, as they come, go and come again. Lasts until it is cancelled, or `answers` is
  /// drained. Lifetime: `answers` outlives it.
  [[nodiscard]] task<void> serve(std::string edge, role_methods& answers);
  /// Lets `of` ask all instances of `to` at a calls edge of which this role is `from`.
  /// Lasts until it is cancelled. Lifetime: `of` outlives it.
  [[nodiscard]] task<void> ask(std::string edge, role_group& of);

  /// Starts the session of a role of `kind = "spmd"`, of which this is instance 0, the
  /// controller; the other instances are its workers, in their order. Ends when all of
  /// the role's start are there, as `session::start` does.
  ///
  ///     const auto body = [&](mw::scope&) -> mw::task<void> {
  ///       if (self.instance().index > 0) co_return co_await self.work(functions);
  ///       mw::session tp = co_await self.session();
  ///       co_await tp.call(step, 1);
  ///       co_await tp.close();
  ///     };
  ///     const int exit_code = self.run(rt, body);
  ///
  /// The job's agents start a worker's process again by the role's `restart`, and the
  /// session takes it in: at `session::respawn`, and unasked unless the role restarts
  /// nothing or `limits.respawn` says how often. `respawn` of a worker that is there, and
  /// `stuck_worker::kill`, let it drop what it has in its process. One that does not do
  /// so in 1.5 s, as it stands still, is told to the master. That ends it after the
  /// role's `grace`, counts that as its failure, and starts the next. Neighbours hear of
  /// none of this, until the budget is used up.
  ///
  /// When the controller dies, its workers stay: they cancel what they do and wait for
  /// its next incarnation, which begins a session with registers that are empty. When it
  /// has ended for good, they end too. Lifetime: the session ends with `run`.
  ///
  /// Errors: std::logic_error in another role or instance, and for a second session;
  /// those of `session::start`. Within `limits.start`, in all, workers that are lost come
  /// again.
  [[nodiscard]] task<manyworlds::session> session(session_options limits = {});
  /// Serves the sessions of such a role's controller as a worker, until one is closed.
  /// This instance is ready once it waits for the first. With `nccl` its device is the
  /// one of its number on its node, `LOCAL_RANK`; the first one that it sees if the role
  /// asks for GPUs; two that moved may have the same then. A function on the compute
  /// thread (`blocking`) that has not ended a second after the controller is gone ends
  /// the process, by SIGALRM. Lifetime: the table outlives it.
  ///
  /// Errors: std::logic_error in another role, or in instance 0; what keeps it from
  /// having its device; value_error if the controller contradicts itself;
  /// std::runtime_error if a later incarnation of this instance works already.
  [[nodiscard]] task<void> work(const function_table& functions);

  /// Returns the next change at an edge that one of these keeps. Of 1,024 that wait,
  /// the oldest is dropped.
  [[nodiscard]] task<peer_event> next_peer_event();

  /// Says that this instance is ready: those that come after it may start.
  void ready() noexcept;
  /// Says how far it is.
  void progress(std::uint64_t steps) noexcept;
  /// Waits until this process shall leave: the job ends, or none follows this instance,
  /// as with the controller of its session. It has the role's `drain` for that. One that
  /// another replaces, as its region or the whole job starts again, is not told: it gets
  /// SIGTERM at once.
  [[nodiscard]] task<void> leaving();

  /// Records a fact of up to 64 KiB for the next incarnation; an instance has 64 of them
  /// at most, and 1 MiB, a job 24 MiB. Ends once it is durable; it waits for a master as
  /// long as there is none. Errors: std::invalid_argument if it is too large, or one too
  /// many.
  [[nodiscard]] task<void> record(std::string key, std::string value);
  /// Returns what earlier incarnations have recorded.
  [[nodiscard]] const std::map<std::string, std::string>& facts() const;

  /// Sets what answers for the roles that this one controls; without it, and where it
  /// takes longer than a second or throws, the answer is no. Precondition: within `run`.
  void on_failover(failover_handler handler);

 private:
  std::shared_ptr<detail::role_core> core_;
};

}  // namespace manyworlds::inline v0
