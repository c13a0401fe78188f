// Succession: what a world inherits that survivors formed from a broken one.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "manyworlds/address.hpp"
#include "manyworlds/world/view.hpp"

namespace manyworlds::inline v0 {

class world_core;

struct succession {
  /// Agreed upon by its members; nothing of it stands in the store.
  world_view view;
  /// The id of the view whose survivors they are.
  std::uint64_t origin = 0;
  /// By rank: the rank in the world whose `shrink()` gave this one.
  std::vector<rank_t> previous_ranks;
  /// Rank and size in the last epoch that was formed through the store.
  rank_t home_rank = no_rank;
  rank_t home_size = 0;
};

/// What is known of the successors of a world where it is shrunk. Kept by the world: a
/// call of `shrink()` that is given up must not forget what was agreed to in it.
struct known_successors {
  /// The last view that is known to be committed; no members before it was ever shrunk.
  world_view base;
  /// The world of it, if it was committed here and is not the one that is shrunk.
  std::shared_ptr<world_core> core;
  /// Views of members of the base that may have been committed or not, as ranks in it.
  std::vector<std::vector<rank_t>> doubts;
  /// There are more than can be told: nobody can judge what they forbid.
  bool has_more_doubts = false;
  /// The successor that is being formed.
  std::shared_ptr<world_core> next;
};

}  // namespace manyworlds::inline v0
