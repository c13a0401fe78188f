// Mesh name: how the worlds of a session are called.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "manyworlds/inline_text.hpp"

namespace manyworlds::inline v0::detail {

/// The world of the controller and one incarnation of a worker: an earlier one that comes
/// late is not taken for it.
[[nodiscard]] inline world_name control_name(std::string_view session, int worker,
                                             std::uint64_t incarnation) {
  return world_name(std::string(session) + "/worker-" + std::to_string(worker) + "." +
                    std::to_string(incarnation));
}

/// Where an incarnation that cannot join says why, for its controller.
[[nodiscard]] inline std::string refusal_key(std::string_view session, int worker,
                                             std::uint64_t incarnation) {
  return control_name(session, worker, incarnation).str() + "/cannot-join";
}

/// One of the worlds that a mesh has in turn, numbered from 1 on.
[[nodiscard]] inline world_name mesh_name(std::string_view session, std::uint32_t mesh,
                                          std::uint64_t number) {
  return world_name(std::string(session) + "/mesh-" + std::to_string(mesh) + "." +
                    std::to_string(number));
}

}  // namespace manyworlds::inline v0::detail
