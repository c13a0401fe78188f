// World plan: who the members of a world are, and how they talk.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "manyworlds/time.hpp"

namespace manyworlds_tests {

namespace mw = manyworlds;
using namespace std::chrono_literals;

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
  std::uint64_t collectives = 0;
  mw::duration pause = 20ms;  ///< between two messages of a lane, at most
  /// From then on senders say their last; and pause twenty times as long from `calm` on.
  mw::time_point calm{};
  mw::time_point quiet{};
};

}  // namespace manyworlds_tests
