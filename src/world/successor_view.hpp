// Successor view: what a world inherits from the broken world that its members survived.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "manyworlds/address.hpp"
#include "manyworlds/world/view.hpp"

namespace manyworlds::inline v0::detail {

class world_core;

/// Describes a world that survivors form.
struct successor_view {
  world_view view;           ///< agreed upon by its members; it is not in the store
  std::uint64_t origin = 0;  ///< the id of the view that they survived
  /// By rank: the rank in the world that was shrunk to this one.
  std::vector<rank_t> previous_ranks;
  /// Rank and size in the last epoch that was formed through the store.
  rank_t home_rank = no_rank;
  rank_t home_size = 0;
};

/// Records what this process knows of the successors of a world that it shrinks. The
/// world keeps it: a call of `shrink()` that is given up must not forget what it agreed
/// to.
struct known_successors {
  /// The last view that is known to be committed; without members before the first
  /// shrinking.
  world_view base;
  /// The world of `base`, if it was committed here and is not the one that is shrunk.
  std::shared_ptr<world_core> core;
  /// Views of members of the base that may have been committed or not, as ranks in it.
  std::vector<std::vector<rank_t>> pending_votes;
  /// True if there are more than can be listed: what they forbid is unknown.
  bool has_more_pending_votes = false;
  std::shared_ptr<world_core> next;  ///< the successor that is being formed
};

}  // namespace manyworlds::inline v0::detail
