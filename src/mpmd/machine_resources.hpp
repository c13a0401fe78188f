// Machine resources: what an agent finds on its machine.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "manyworlds/mpmd/node_resources.hpp"

namespace manyworlds::inline v0::detail {

/// Where a machine is looked at. Tests have machines of their own.
struct machine_view {
  std::string root = "/";         ///< where its files begin
  std::vector<unsigned> allowed;  ///< the CPUs that this process may use
  std::string nvml = "libnvidia-ml.so.1";
};

/// Finds what `node_resources::of_this_machine` says, on that machine.
[[nodiscard]] node_resources find_resources(std::string name, const machine_view& machine,
                                            std::optional<std::string_view> visible);

}  // namespace manyworlds::inline v0::detail
