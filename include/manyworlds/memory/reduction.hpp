// Reductions: the ways in which collectives combine elements.
#pragma once

#include <cstdint>
#include <string_view>

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0 {

/// A reduction. The values are those of ncclRedOp_t and travel between members: never
/// renumber them.
enum class reduction : std::uint8_t { sum = 0, prod = 1, max = 2, min = 3, avg = 4 };

/// The reductions under short names: `w.all_reduce(x, mw::sum)`.
inline constexpr reduction sum = reduction::sum;
inline constexpr reduction prod = reduction::prod;
inline constexpr reduction max = reduction::max;
inline constexpr reduction min = reduction::min;

/// The sum divided by the number of members, in the elements' own arithmetic.
inline constexpr reduction avg = reduction::avg;

[[nodiscard]] constexpr std::string_view name_of(reduction r) noexcept {
  constexpr std::string_view names[] = {"sum", "prod", "max", "min", "avg"};
  return names[static_cast<std::size_t>(r)];
}

}  // namespace manyworlds::inline v0
