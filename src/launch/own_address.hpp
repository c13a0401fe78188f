// Own address: under which address the other members of a job reach this process.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "manyworlds/io/socket_address.hpp"
#include "manyworlds/launch/launch_context.hpp"

namespace manyworlds::inline v0::detail {

/// Returns the addresses of "host:port"; the lookup of a name takes up to 10 s. Errors:
/// launch_error naming the variable that the endpoint came from.
[[nodiscard]] std::vector<socket_address> look_up(const launch_context& job,
                                                  std::string_view endpoint);

/// Returns the address, with port 0, on which this process listens for the other members:
/// on loopback if all are here, on the interface that was named, or on the one that leads
/// to the store. Errors: launch_error.
[[nodiscard]] socket_address own_address(const launch_context& job);

}  // namespace manyworlds::inline v0::detail
