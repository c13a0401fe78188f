// Node agent: starts, watches and ends a session's workers on one node.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/launch/process_options.hpp"
#include "manyworlds/launch/supervised_process.hpp"
#include "manyworlds/store/store.hpp"
#include "manyworlds/world/runtime.hpp"
#include "manyworlds/world/world.hpp"
#include "spmd/hosted_worker.hpp"
#include "spmd/node_messages.hpp"
#include "spmd/worker_invitation.hpp"

namespace manyworlds::inline v0::detail {

/// What an agent knows beside what its controller tells it.
struct node_place {
  int node = 0;
  /// Where the controller's store is, as this node reaches it.
  std::string store;
  /// Where its workers listen: this node's address, with port 0.
  std::string listen = "127.0.0.1:0";
  /// A file for each worker's output, in this folder; empty: the agent's own output.
  std::string log_folder;
  /// How long it waits for its controller.
  duration wait = std::chrono::seconds(60);
};

/// Serves one session. Its workers have control worlds with it, and it passes on what
/// they are told and say; it waits for none of them. When it ends, they end too, with all
/// that descends from them. Thread: the runtime's reactor. Lifetime: runtime and store
/// outlive it.
class node_agent {
 public:
  node_agent(runtime& rt, store& meeting, node_place place, process_options program);
  node_agent(const node_agent&) = delete;
  node_agent& operator=(const node_agent&) = delete;

  /// Ends when the session has. Errors: store_error if its controller cannot be reached,
  /// or has no nodes; world_error with the causes of forming, such as
  /// `rank_taken` where the node has an agent, and of the loss of its controller.
  [[nodiscard]] task<void> run();
  /// Ends it, and its workers, whatever the session does. Thread: the reactor.
  void end() noexcept { told_to_end_.set(); }

 private:
  [[nodiscard]] task<void> join();
  [[nodiscard]] task<void> obey(scope& s);
  /// Passes on what comes on that lane.
  [[nodiscard]] task<void> pass_on(lane on);
  [[nodiscard]] task<void> watch_silence();
  /// Returns the present incarnation of a worker if it is that one, or null.
  [[nodiscard]] std::shared_ptr<hosted_worker> find(
      int worker, std::uint64_t incarnation) const noexcept;
  [[nodiscard]] task<void> start(scope& s, int worker, std::uint64_t incarnation,
                                 std::string invitation);
  [[nodiscard]] task<void> end(int worker, std::uint64_t incarnation, duration patience);
  void tell(node_wire::report_kind kind, int worker, std::uint64_t incarnation,
            std::string text = {}, std::int64_t pid = 0);
  [[nodiscard]] process_options options_for(worker_invitation invited) const;

  runtime& runtime_;
  store& meeting_;
  const node_place place_;
  const process_options program_;
  world world_;
  node_outbox<node_wire::report_head> outbox_;
  event told_to_end_;
  std::map<int, std::shared_ptr<hosted_worker>> workers_;
};

}  // namespace manyworlds::inline v0::detail
