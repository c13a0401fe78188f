// Moves a set of messages at once, each pair of ranks in its order.
#pragma once

#include "communicator.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace nccl_emulation {

/// What both ends of a message must agree on. Where they do not, neither completes.
struct signature {
  std::int32_t call = 0;
  std::int32_t phase = 0;
  std::int32_t type = 0;
  std::int32_t op = 0;
  std::int32_t root = 0;
  std::uint64_t bytes = 0;

  bool operator==(const signature&) const = default;
};

struct outgoing {
  int peer = 0;
  const void* data = nullptr;
  signature about;
};

struct incoming {
  int peer = 0;
  void* data = nullptr;
  signature about;
  bool complete = false;
};

/// Blocks until all have moved, or the communicator's flag is raised: then `false`, and
/// those incoming that have come whole are marked. A dead peer or a disagreement just
/// never completes; in the socket death mode the communicator then has its remote error
/// after the delay.
bool exchange(communicator& c, std::vector<outgoing>& sends,
              std::vector<incoming>& receives);

}  // namespace nccl_emulation
