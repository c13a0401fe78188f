// Pool offers: what the peer is told of payloads that lie in shared pools.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "../link/shared_link.hpp"
#include "cell_frame.hpp"
#include "manyworlds/memory/shared_buffer.hpp"
#include "manyworlds/memory/view_list.hpp"

namespace manyworlds::inline v0::host {

/// A payload in one place is named by its pool and offset; one in many places by a list
/// of them, which lies in a pool too while it is offered, since nowhere else the peer is
/// sure to find it.
class pool_offers {
 public:
  explicit pool_offers(shm::shared_link& link) noexcept : link_(link) {}

  /// Says in `where` what lies in pools; nothing if any of it does not, or the peer
  /// cannot be told. `id` is the message's.
  void describe(const const_view_list& source, std::uint64_t id, remote_payload& where);
  /// The message is not offered any more.
  void forget(std::uint64_t id) noexcept {
    if (!lists_.empty()) lists_.erase(id);
  }
  void forget_all() noexcept { lists_.clear(); }

 private:
  [[nodiscard]] bool fill(const const_view_list& source, std::byte* into,
                          std::uint64_t& pieces);

  shm::shared_link& link_;
  std::unordered_map<std::uint64_t, shared_buffer> lists_;
};

}  // namespace manyworlds::inline v0::host
