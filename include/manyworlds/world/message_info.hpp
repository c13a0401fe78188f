// Message info: what is known of a message before and after it is received.
#pragma once

#include <cstddef>

#include "manyworlds/address.hpp"
#include "manyworlds/memory/dtype.hpp"

namespace manyworlds::inline v0 {

/// Describes a message, before and after it is received.
struct message_info {
  rank_t source = no_rank;
  lane on;
  user_word user;
  std::size_t bytes = 0;      ///< behind the head
  std::size_t count = 0;      ///< elements behind the head
  dtype type = dtype::uint8;  ///< as the sender gave it
  /// Bytes of the head; 0 if there is none or it was taken already.
  std::size_t head_bytes = 0;
  /// True if something follows the head that the lane's next receive takes, even of no
  /// bytes. False if the sender gave only a head.
  bool has_payload = false;
  bool on_device = false;  ///< elements lie in, and are received into, device memory
};

}  // namespace manyworlds::inline v0
