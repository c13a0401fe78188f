// Store limits: how large keys, values and lists of keys may be.
#pragma once

#include <cstddef>

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0 {

/// Limits that are checked before anything is sent, and by servers on each length as it
/// arrives. The defaults are those of PyTorch's server, so that every TCPStore accepts
/// what our stores accept.
struct store_limits {
  std::size_t key_bytes = 8 * 1024;
  std::size_t value_bytes = 8 * 1024 * 1024;
  std::size_t keys_per_request = 128 * 1024;
  /// All keys and values of one request; it bounds what a server holds for one
  /// connection.
  std::size_t request_bytes = 64 * 1024 * 1024;
};

}  // namespace manyworlds::inline v0
