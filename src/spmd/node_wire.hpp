// Node wire: the protocol between a controller and the agent of one node, all of it on
// lane 0 of their world. The controller is rank 0. Behind a head stands a text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "manyworlds/inline_text.hpp"

namespace manyworlds::inline v0::detail::node_wire {

inline constexpr std::uint32_t version = 1;
inline constexpr std::size_t longest_text = 4096;

/// The world of the controller and one node. The store is the session's own, so that the
/// name needs nothing of it.
[[nodiscard]] inline world_name node_name(int node) {
  return world_name("mwnode-" + std::to_string(node));
}

/// What the controller says before: for how long a peer may be silent, as
/// "SUSPECT LOST" in nanoseconds.
inline constexpr const char* limits_key = "mwnode-limits";

enum class order_kind : std::uint8_t {
  start = 1,  ///< a worker; the text is its invitation
  end = 2,    ///< a worker, after `patience` by force
};

struct order_head {
  std::uint64_t incarnation;
  std::int64_t patience;  ///< of `end`, in nanoseconds
  std::int32_t worker;
  order_kind kind;
  std::uint8_t unused[3];
};

enum class report_kind : std::uint8_t {
  hello = 1,    ///< the first one; `worker` is the version
  started = 2,  ///< with its pid
  ended = 3,    ///< by itself, or it could not start; the text says how
  gone = 4,     ///< what `end` was for: nothing is left of it
};

struct report_head {
  std::uint64_t incarnation;
  std::int64_t pid;
  std::int32_t worker;
  report_kind kind;
  std::uint8_t unused[3];
};

static_assert(std::is_trivially_copyable_v<order_head> && sizeof(order_head) == 24);
static_assert(std::is_trivially_copyable_v<report_head> && sizeof(report_head) == 24);

}  // namespace manyworlds::inline v0::detail::node_wire
