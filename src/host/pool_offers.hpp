// Pool offers: what the peer is told of payloads that lie in shared pools.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "host/cell_frame.hpp"
#include "link/shared_link.hpp"
#include "manyworlds/detail/view_list.hpp"
#include "manyworlds/memory/shared_buffer.hpp"

namespace manyworlds::inline v0::detail::host {

/// Describes payloads in shared pools. A payload in one place is named by pool and
/// offset. One in several places is named by a list in the pool, where the peer surely
/// finds it while the payload is offered.
class pool_offers {
 public:
  explicit pool_offers(shm::shared_link& link) noexcept : link_(link) {}

  /// Sets `where` if all of the payload lies in pools and the peer can be told of them.
  /// `id` is the message's.
  void describe(const const_view_list& source, std::uint64_t id, remote_payload& where);
  /// Called when the message is no longer offered.
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

}  // namespace manyworlds::inline v0::detail::host
