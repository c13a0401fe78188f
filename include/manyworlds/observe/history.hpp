// History: what a world has seen and moved so far.
#pragma once

#include <cstdint>
#include <vector>

#include "manyworlds/failure.hpp"
#include "manyworlds/time.hpp"

namespace manyworlds::inline v0 {

/// How many operations ended with one cause.
struct error_count {
  enum cause cause = cause::none;
  std::uint64_t operations = 0;
};

/// What happened to a world so far.
struct world_history {
  /// Time since it was formed; zero before.
  duration up_for{0};
  /// Times that a member became suspect.
  std::uint64_t times_suspect = 0;
  /// Operations that ended with an error, by cause; only causes that occurred.
  std::vector<error_count> errors;
};

/// What a world has moved so far.
struct transfer_counters {
  std::uint64_t messages_sent = 0;
  std::uint64_t messages_received = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
};

}  // namespace manyworlds::inline v0
