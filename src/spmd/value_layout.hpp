// Value layout: where the data of values stands in a message.
#pragma once

#include <cstddef>
#include <cstdint>

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0::detail {

/// Larger data goes beside the values, from the caller's memory to the reader's without a
/// copy. Below that an entry in the list of views costs more than the copy.
inline constexpr std::size_t most_bytes_inside = 4096;

/// Each part beside the values starts at a multiple of this, so that what is received can
/// be a tensor as it is.
inline constexpr std::size_t beside_alignment = 64;

/// Says where data stands; on the wire, so never renumber.
enum class data_place : std::uint8_t { inside = 0, beside = 1 };

/// Returns the bytes up to the next multiple of `alignment`, a power of two.
[[nodiscard]] constexpr std::size_t padding_at(std::size_t offset,
                                               std::size_t alignment) noexcept {
  return (alignment - offset % alignment) % alignment;
}

}  // namespace manyworlds::inline v0::detail
