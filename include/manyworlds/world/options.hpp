// World options: which world, which rank, and how patient it is.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "manyworlds/address.hpp"
#include "manyworlds/coro/timer_queue.hpp"
#include "manyworlds/inline_text.hpp"

namespace manyworlds::inline v0 {

/// Describes a world to form. Trivially destructible, so that it can be written in an
/// awaited expression. All members give the same name and size, each its own rank.
struct world_options {
  world_name name = {};
  rank_t rank = 0;
  rank_t size = 0;

  /// How long forming may take, all retries included.
  duration form = std::chrono::seconds(60);
  /// How long `leave()` waits for what was sent to be taken.
  duration drain = std::chrono::seconds(5);
  /// A peer that is not heard of for this long is suspect: visible, nothing else.
  duration suspect_after = std::chrono::seconds(1);
  /// ... and for this long breaks the world.
  duration broken_after = std::chrono::seconds(5);
  /// A begun transfer that moves no byte for this long breaks the world.
  duration stall = std::chrono::seconds(10);
  /// A collective that not all members have entered names the absent ranks after this
  /// long ...
  duration collective_log = std::chrono::seconds(5);
  /// ... and breaks the world after this long.
  duration collective_break = std::chrono::seconds(60);
};

/// What is wrong with the options, naming it; empty if nothing.
[[nodiscard]] std::string objection_to(const world_options& options);

}  // namespace manyworlds::inline v0
