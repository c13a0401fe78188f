// Node relay: what the workers of one node are told and say, by way of their agent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/failure.hpp"
#include "manyworlds/world/world.hpp"
#include "spmd/node_messages.hpp"

namespace manyworlds::inline v0::detail {

class worker_link;

/// Sends what the links of a node's workers have for them. One message serves all that
/// have the same command at the front and room for it: its block crosses the network
/// once. Commands go in the order in which they were issued, over all links.
///
/// Part of its node link. Thread: the session's reactor.
class node_relay {
 public:
  /// The workers from `first` on are its own. `orders` goes to their agent.
  node_relay(int node, int first, int count, node_outbox<node_wire::order_head>& orders)
      : name_(node_wire::node_name(node)),
        first_(first),
        orders_(orders),
        links_(static_cast<std::size_t>(count)) {}
  node_relay(const node_relay&) = delete;
  node_relay& operator=(const node_relay&) = delete;

  /// Takes part for a link, which serves an incarnation for as long as this lives. Null:
  /// there is no relay.
  class attachment {
   public:
    attachment(node_relay* to, worker_link& link) noexcept;
    attachment(const attachment&) = delete;
    attachment& operator=(const attachment&) = delete;
    ~attachment();

   private:
    node_relay* const to_;
    worker_link& link_;
  };

  /// Returns the link of a worker that is served, or null.
  [[nodiscard]] worker_link* find(int worker) const noexcept;
  /// Is told that a link may have something to send.
  void wake() noexcept { wake_.set(); }
  [[nodiscard]] std::uint64_t next_order() noexcept { return ++last_order_; }
  /// Lets the agent break the control world of a link.
  void fail(const worker_link& link, std::string why);
  /// Returns whether an event of that world is of this node, and says so of its agent.
  [[nodiscard]] bool is_heard(const world_name& name, bool is_suspect) const noexcept;

  /// Sends and receives until it is cancelled. Errors: those of the world. Lifetime: it
  /// outlives the task.
  [[nodiscard]] task<void> serve(world& w);

 private:
  [[nodiscard]] worker_link* earliest(bool urgent) const noexcept;
  [[nodiscard]] task<void> write(world& w, bool urgent);
  [[nodiscard]] task<void> send(world& w, worker_link& first, bool urgent);
  [[nodiscard]] task<void> read(world& w);
  [[nodiscard]] std::string objection_to(const node_wire::word_of& head,
                                         std::size_t bytes) const;

  const world_name name_;
  const int first_;
  node_outbox<node_wire::order_head>& orders_;
  std::vector<worker_link*> links_;  ///< null where none is served
  std::uint64_t last_order_ = 0;
  event wake_;
  const world* agent_ = nullptr;  ///< while there is one
};

}  // namespace manyworlds::inline v0::detail
