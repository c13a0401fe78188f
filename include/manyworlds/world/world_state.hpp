// World state: where a world is in its life.
#pragma once

#include <cstdint>
#include <string_view>

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0 {

/// Where a world is in its life.
enum class world_state : std::uint8_t {
  described,  ///< not awaited yet
  forming,
  up,
  closing,  ///< `leave()` is under way
  closed,   ///< left, by us or by all others
  broken,
};

[[nodiscard]] std::string_view name_of(world_state s) noexcept;

}  // namespace manyworlds::inline v0
