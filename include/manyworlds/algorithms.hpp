// Algorithms: how collectives on host memory are carried out, and which one is chosen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "manyworlds/failure.hpp"

namespace manyworlds::inline v0 {

/// Names a way to carry out a collective. Values travel between members, which must
/// have chosen the same one: never renumber.
enum class algorithm : std::uint8_t {
  /// Each member that has data sends it at once to each member that needs it. A
  /// reducing member combines all contributions in the order of ranks. One step: the
  /// fastest for small data and few members. What the root sends or receives grows with
  /// both.
  flat = 1,
  /// Each member reduces the part of one rank, which it reads from all others, and then
  /// the members gather the parts. This is Rabenseifner's idea ("Optimization of
  /// Collective Reduction Operations", 2004) without his recursion: on one host every
  /// member reads every other at the same cost.
  direct = 2,
  /// A binomial tree from or to the root. A barrier uses a dissemination (Hensgen,
  /// Finkel, Manber: "Two Algorithms for Barrier Synchronization", 1988). It takes as
  /// many steps as the number of members has bits.
  logarithmic = 3,
  /// Every member exchanges messages with its neighbours only, in as many steps as
  /// there are members, one part a step (Patarasuk, Yuan: "Bandwidth Optimal All-reduce
  /// Algorithms", 2009). The root of a broadcast scatters first (van de Geijn).
  ring = 4,
};

[[nodiscard]] std::string_view name_of(algorithm a) noexcept;

/// Where the members of a world live, as a rule asks for it.
enum class placement : std::uint8_t {
  anywhere,
  one_host,  ///< all members
  several_hosts,
};

/// Chooses `use` for this kind and placement, up to this number of members and bytes.
/// Bytes are those of the longer buffer. For gather, scatter and all_to_all they are
/// those of one rank's part, and 0 if the parts differ. A rule that is not possible
/// (`can_do`) is skipped.
struct algorithm_rule {
  operation_kind kind = operation_kind::none;
  placement where = placement::anywhere;
  rank_t members_at_most = 0;
  std::size_t bytes_at_most = 0;
  algorithm use = algorithm::flat;
};

/// Returns the library's rules, of which the first that fits applies. A runtime's rules
/// (`runtime_options::algorithms`) precede them. All members must have the same rules.
/// On one host small collectives for which only these rules fit go through memory that
/// each member writes for all others; the algorithm then counts where that is refused.
[[nodiscard]] std::span<const algorithm_rule> default_algorithms() noexcept;

/// Returns whether this algorithm exists for this kind of collective.
[[nodiscard]] bool can_do(algorithm a, operation_kind kind) noexcept;

}  // namespace manyworlds::inline v0
