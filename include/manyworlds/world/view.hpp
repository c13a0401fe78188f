// World view: the members of one epoch. Every member keeps it.
#pragma once

#include <cstdint>
#include <vector>

#include "manyworlds/address.hpp"
#include "manyworlds/inline_text.hpp"
#include "manyworlds/process_address.hpp"

namespace manyworlds::inline v0 {

/// The members of one epoch of a world, by rank.
struct world_view {
  world_name name;
  std::uint64_t epoch = 0;
  std::uint64_t id = 0;  ///< random; names the epoch on the wire
  std::vector<process_address> members;

  [[nodiscard]] rank_t size() const noexcept {
    return static_cast<rank_t>(members.size());
  }
  /// Returns the process of a rank. Errors: std::out_of_range if there is none.
  [[nodiscard]] const process_address& member(rank_t rank) const {
    return members.at(static_cast<std::size_t>(rank));
  }
  /// Returns the rank of a process, or no_rank.
  [[nodiscard]] rank_t rank_of(const incarnation& id) const noexcept;

  /// The number of members that a world can have.
  static constexpr rank_t largest_size = 4096;
};

}  // namespace manyworlds::inline v0
