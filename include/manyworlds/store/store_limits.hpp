// Store limits: how large keys, values and lists of keys may be.
#pragma once

#include <cstddef>

#include "manyworlds/config.hpp"

namespace manyworlds::inline v0 {

/// Checked before anything is sent, and by servers on each length as it arrives. The
/// defaults are those of PyTorch's server, so that what one of our stores takes, every
/// TCPStore takes.
struct store_limits {
  std::size_t key_bytes = 8 * 1024;
  std::size_t value_bytes = 8 * 1024 * 1024;
  std::size_t keys_per_request = 128 * 1024;
  /// All keys and values of one request; a server's bound on what one connection may make
  /// it hold.
  std::size_t request_bytes = 64 * 1024 * 1024;
};

}  // namespace manyworlds::inline v0
