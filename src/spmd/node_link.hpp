// Node link: the controller's end of one node's agent.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/spmd/session_options.hpp"
#include "manyworlds/store/store.hpp"
#include "manyworlds/world/runtime.hpp"
#include "manyworlds/world/world.hpp"
#include "spmd/node_messages.hpp"
#include "spmd/node_relay.hpp"

namespace manyworlds::inline v0::detail {

/// One incarnation of a worker on a node. Its events stay set.
struct node_seat {
  std::uint64_t incarnation = 0;
  std::int64_t pid = 0;
  std::string how;  ///< it has ended, or why it is not known to run
  event decided;    ///< it runs, or has ended
  event ended;
  event gone;  ///< and nothing is left of it
};

/// Has one agent after the other: one that is lost may be replaced by another of that
/// node. What a lost one had started counts as ended. Thread: the session's reactor.
class node_link {
 public:
  /// Errors: std::bad_alloc.
  node_link(runtime& rt, int node, const nodes& how)
      : runtime_(rt),
        node_(node),
        join_(how.limits.start),
        relay_(node, node * how.workers_per_node, how.workers_per_node, outbox_) {}
  node_link(const node_link&) = delete;
  node_link& operator=(const node_link&) = delete;

  /// Forms the world with the agent again and again, until `over` is set. Errors: none.
  [[nodiscard]] task<void> run(store& meeting, const session_options& limits,
                               event& over);

  /// Lets the agent start a worker, once it has joined. Errors: world_error
  /// (`not_joined`) saying why there is no worker.
  [[nodiscard]] task<void> start(int worker, std::uint64_t incarnation,
                                 std::string invitation);
  /// Lets it end one.
  [[nodiscard]] task<void> end(int worker, duration patience);
  /// Returns what its workers are told and say.
  [[nodiscard]] node_relay& relay() noexcept { return relay_; }
  /// Returns the present incarnation of a worker, or null.
  [[nodiscard]] std::shared_ptr<node_seat> find(int worker) const noexcept;

 private:
  [[nodiscard]] task<void> meet_agents(store& meeting, const session_options& limits,
                                       event& over);
  [[nodiscard]] task<void> serve(world& w, event& over);
  [[nodiscard]] task<void> greet(world& w);
  [[nodiscard]] task<void> read(world& w);
  [[nodiscard]] task<void> order_start(int worker, std::shared_ptr<node_seat> seat,
                                       std::string invitation);
  void take_report(const node_wire::report_head& head, std::string text);
  void lose() noexcept;

  runtime& runtime_;
  const int node_;
  const duration join_;  ///< bounds a start
  std::string trouble_ = "has not joined";
  failure why_lost_;
  node_outbox<node_wire::order_head> outbox_;
  node_relay relay_;
  event joined_;  ///< reset while there is no agent
  std::map<int, std::shared_ptr<node_seat>> seats_;
};

}  // namespace manyworlds::inline v0::detail
