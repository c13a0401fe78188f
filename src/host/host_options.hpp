// Host options: the limits of one host backend.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "manyworlds/algorithms.hpp"
#include "manyworlds/time.hpp"

namespace manyworlds::inline v0::detail {

/// Holds the limits of one host backend. The members of a world must agree on the first
/// four: each member enforces them on the others.
struct host_backend_options {
  /// The largest message, head included, that is sent before a receive asks for it.
  std::size_t eager_limit = std::size_t{64} * 1024;
  /// The largest message that this member sends unasked through shared memory, if it
  /// finds chunks for it. Beyond the eager limit it has no effect.
  std::size_t unasked_in_memory = std::size_t{64} * 1024;
  /// Unreceived data of one lane, and of all peers together, but a lane's window for each
  /// peer at least. Beyond it senders wait. Messages of whole chunks fill at most seven
  /// eighths of a link's from one lane. With 256 KiB four streams of 64 KiB on one lane
  /// took 1.2 to 1.4 times as long, since credit comes by halves.
  std::size_t lane_window = std::size_t{448} * 1024;
  std::size_t world_window = std::size_t{4} * 1024 * 1024;
  /// The largest piece of a message that delays other lanes.
  std::size_t slice = std::size_t{256} * 1024;
  /// A begun transfer that moves no byte for this long breaks the world.
  duration stall_limit = std::chrono::seconds(10);
  /// How long a send that is given up late waits to learn whether it was taken.
  duration settle_limit = std::chrono::seconds(1);
  /// Ranks that do not enter a collective are logged; later they break the world.
  duration collective_log = std::chrono::seconds(5);
  duration collective_break = std::chrono::seconds(60);
  /// Whether all members live on one host. All members must have the same value.
  bool one_host = false;
  /// CPUs of that host; 0: asked of this machine.
  rank_t cpus = 0;
  /// The id of this epoch of the world, which its members' pages must carry.
  std::uint64_t world_id = 0;
  /// Rules that precede the default ones; all members must have the same. Lifetime:
  /// must outlive the backend.
  std::span<const algorithm_rule> algorithms;
  /// A send that has waited this long for the window that all lanes share is logged,
  /// with the lanes that hold the window. Logged once a world.
  duration window_log = std::chrono::seconds(5);
  /// How many lanes of one peer are remembered as received on, and as discarded.
  std::size_t known_lanes = 65'536;
};

}  // namespace manyworlds::inline v0::detail
