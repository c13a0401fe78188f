// Rendezvous words: what agent and coordinator tell each other, over their world of two.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "link/wire.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/launch/rendezvous.hpp"
#include "manyworlds/world/world.hpp"

namespace manyworlds::inline v0::detail {

/// What an agent wishes. It sends all of it anew with each change, so that words need no
/// order, and a new coordinator learns all from the first.
struct agent_words {
  node_description node;
  /// What the node was given; nothing where the coordinator gives places.
  std::optional<int> place;
  std::uint64_t min_nodes = 0;
  std::uint64_t max_nodes = 0;
  bool asks = false;
  bool has_left = false;
  departure how = departure::finished;
  bool closes = false;
  /// The highest round that it has heard of, with or without it: a lower one is refused.
  std::uint64_t highest = 0;
  /// The last round that it was in, as JSON; empty if there is none.
  std::string last_round;
  /// The nodes of it that are known to be done.
  std::set<std::string> finished;
  /// The nodes of it that have coordinated since, and died: only their agents saw that.
  std::set<std::string> died;
  /// Its notice to the other nodes of that round.
  std::string notice;

  [[nodiscard]] bytes encode() const;
  /// Errors: wire_error.
  [[nodiscard]] static agent_words decode(std::span<const std::byte> message);
};

/// What the coordinator knows, for one agent. Sent anew with each change, too, but for
/// the notices, of which each connection is told once.
struct coordinator_words {
  /// Of the seat, see `coordinator_seat::name`.
  std::string seat;
  /// The id of the coordinator's own node.
  std::string node;
  /// Why it does not take this node; empty if it does.
  std::string refusal;
  /// The last round, as JSON; empty if there is none.
  std::string last_round;
  round_change change = round_change::none;
  std::string about;               ///< the node that `change` is about
  std::set<std::string> finished;  ///< nodes of the last round that are done
  std::uint32_t asking = 0;
  bool closed = false;
  /// Notices of nodes of the last round, by their ids.
  std::map<std::string, std::string> notices;

  [[nodiscard]] bytes encode() const;
  /// Errors: wire_error.
  [[nodiscard]] static coordinator_words decode(std::span<const std::byte> message);
};

/// Sends one message to the other of two.
[[nodiscard]] task<void> say(world& w, bytes message);
/// Receives the next one. Errors: wire_error if it is larger than any of ours.
[[nodiscard]] task<bytes> hear(world& w);

}  // namespace manyworlds::inline v0::detail
