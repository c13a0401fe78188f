// Peer world: the options of the worlds of `accept` and `connect`.
#pragma once

#include <cstdint>
#include <string_view>

#include "manyworlds/world/options.hpp"
#include "serve/join_queue.hpp"

namespace manyworlds::inline v0::detail {

/// Checks the options. Errors: world_error (`invalid_argument`) that names what is
/// wrong.
void check_service(std::string_view caller, const service_name& service,
                   const world_options& options);

/// Returns the options of the world with the peer of that number:
/// "decode/00c5b1f7a2d09e34".
[[nodiscard]] world_options peer_world_options(world_options options,
                                               const service_name& service,
                                               std::uint64_t peer, rank_t rank);

}  // namespace manyworlds::inline v0::detail
