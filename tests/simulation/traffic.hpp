// Traffic: what the members of a world say to each other in a random scenario, every byte
// of it checked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "manyworlds/coro/scope.hpp"
#include "simulation/world_cluster.hpp"

namespace manyworlds_tests {

/// How the messages of a lane are sent and received.
enum class lane_style : unsigned char {
  sized,   ///< `arrival` tells the size
  headed,  ///< a head tells it
  paired,  ///< a large one and a small one, two sends and two receives at a time
  any,     ///< all alike; to rank 0, which receives from anyone
};
inline constexpr std::uint64_t lane_styles = 4;

struct world_plan {
  std::string name;
  std::vector<std::size_t> members;  ///< processes, by rank
  bool uses_lane[lane_styles] = {};
  std::size_t like_size = 1000;  ///< of messages that are all alike
  std::uint64_t barriers = 0;
  mw::duration pause = 20ms;  ///< between two messages of a lane, at most
  /// From then on senders say their last; and pause twenty times as long from `calm` on.
  mw::time_point calm{};
  mw::time_point quiet{};
};

/// Talks until all have said their last, or until the world is over: then throws its
/// failure.
[[nodiscard]] mw::task<void> talk(cluster& all, member_process& self,
                                  const world_plan& plan, mw::world& w);

/// `keep` with that body.
[[nodiscard]] mw::task<void> keep_talking(cluster& all, member_process& self,
                                          const world_plan& plan, mw::rank_t rank);

}  // namespace manyworlds_tests
