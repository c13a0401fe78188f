// Round: an agreed set of nodes with their ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0 {

/// A place for workers, as it joins a rendezvous.
struct node_description {
  node_description() = default;
  node_description(std::string on, int workers, std::string with_role = "default")
      : host(std::move(on)), role(std::move(with_role)), slots(workers) {}

  /// Tells this agent's process from all others, at most 64 bytes. Empty: random.
  std::string id;
  /// A name or an address that people and workers reach it by.
  std::string host;
  std::string role = "default";
  /// Workers that it starts.
  int slots = 1;
};

/// A node within a round.
struct round_node : node_description {
  round_node() = default;
  explicit round_node(node_description what, int at = 0)
      : node_description(std::move(what)), place(at) {}

  /// Kept for as long as the node lives. A node that comes for a lost one takes its
  /// place.
  int place = 0;
  /// Its position among the places that are taken: 0 to the number of nodes - 1.
  int rank = 0;
  /// The ranks of its workers among all, and among those of its role: this one and the
  /// next `slots` - 1.
  int first_rank = 0;
  int first_role_rank = 0;
  /// Workers of its role in the whole round.
  int role_size = 0;
};

/// An agreed set of nodes. Rounds of a run are numbered from 1, and grow. As text it is
/// JSON of at most 1 MiB: an object with `run`, `round` and `nodes`, of which each has
/// `id`, `host`, `place`, `role` and `slots`.
///
///     const mw::round r = mw::round::from_json(text);
///     const mw::round_node* self = r.find(id);
///     if (self) std::printf("rank %d of %d", self->first_rank, r.size());
struct round {
  std::string run;
  std::uint64_t number = 0;
  /// By their places.
  std::vector<round_node> nodes;

  /// Gives all workers their ranks: those of a node stand together, nodes in the order of
  /// their places (as TorchElastic assigns ranks by group rank). Call it after the nodes
  /// are set.
  void assign_ranks();
  /// Returns the number of all workers.
  [[nodiscard]] int size() const noexcept;
  /// Returns the node with that id, or null.
  [[nodiscard]] const round_node* find(std::string_view id) const noexcept;
  /// Returns it as text. Errors: std::runtime_error in a build without nlohmann-json.
  [[nodiscard]] std::string to_json() const;
  /// Errors: std::invalid_argument naming what is no round; std::runtime_error as above.
  [[nodiscard]] static round from_json(std::string_view text);
};

}  // namespace manyworlds::inline v0
