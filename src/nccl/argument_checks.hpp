// Argument checks: what is wrong with an operation on device memory, before any member is
// told of it.
#pragma once

#include <string>

#include "manyworlds/detail/device_part.hpp"
#include "manyworlds/detail/operation.hpp"
#include "nccl/order_message.hpp"

namespace manyworlds::inline v0::detail::nccl {

/// Returns what the members of a collective must agree on.
[[nodiscard]] collective_terms terms_of(const operation& op, rank_t size) noexcept;
/// Returns what is wrong with the peers, root and counts; empty if nothing is.
[[nodiscard]] std::string validate(const operation& op, rank_t self, rank_t size);
/// Returns what not every member's NCCL and device can do; empty if all can.
/// `capability` is the least of all members' devices.
[[nodiscard]] std::string missing_for(const operation& op, rank_t size, int capability);

}  // namespace manyworlds::inline v0::detail::nccl
