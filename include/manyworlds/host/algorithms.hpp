// Algorithms: how collectives on host memory are carried out, and which is taken when.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "manyworlds/failure.hpp"

namespace manyworlds::inline v0 {

/// Values travel between members, who must have chosen the same: never renumber.
enum class algorithm : std::uint8_t {
  /// Everybody who has something gives it at once to everybody who needs it; who reduces
  /// takes all in the order of ranks. One step: the fastest of small data and of few
  /// members, and what the root sends or takes grows with both.
  flat = 1,
  /// Each member reduces the part of one rank, reading it from all others, and then they
  /// gather the parts (Rabenseifner's idea, "Optimization of Collective Reduction
  /// Operations", 2004, without his recursion: on one host every member reads every other
  /// at the same cost).
  direct = 2,
  /// A binomial tree from or to the root, or, of a barrier, a dissemination
  /// (Hensgen, Finkel, Manber: "Two Algorithms for Barrier Synchronization", 1988): as
  /// many steps as the number of members has bits.
  logarithmic = 3,
  /// Every member speaks to its neighbours only, as many steps as members, each with one
  /// part (Patarasuk, Yuan: "Bandwidth Optimal All-reduce Algorithms", 2009). The root of
  /// a broadcast scatters first (van de Geijn).
  ring = 4,
};
[[nodiscard]] std::string_view name_of(algorithm a) noexcept;

enum class placement : std::uint8_t {
  anywhere,
  one_host,  ///< all members
  several_hosts,
};

/// "Of this collective, there, with at most so many members and bytes: that way." Bytes
/// are those of the longer buffer; of gather, scatter and all_to_all, of one rank's part,
/// and 0 of their forms of several sizes. A rule for what cannot be done that way
/// (`can_do`) is passed over.
struct algorithm_rule {
  operation_kind kind = operation_kind::none;
  placement where = placement::anywhere;
  rank_t members_at_most = 0;
  std::size_t bytes_at_most = 0;
  algorithm use = algorithm::flat;
};

/// What the library goes by: the first rule that fits. Rules of a runtime's own
/// (`runtime_options::algorithms`) come before it; all members must have the same.
[[nodiscard]] std::span<const algorithm_rule> default_algorithms() noexcept;

/// Whether there is such a way to do such a collective.
[[nodiscard]] bool can_do(algorithm a, operation_kind kind) noexcept;

}  // namespace manyworlds::inline v0
