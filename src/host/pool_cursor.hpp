// Pool cursor: walks an offered payload that lies in shared pools of its sender.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <span>

#include "host/cell_frame.hpp"
#include "host/piece_window.hpp"
#include "link/pool_exchange.hpp"

namespace manyworlds::inline v0::detail::host {

/// Walks what a peer says of its pools. Whatever it says, only its pools are read, and
/// at most the message's number of bytes.
class pool_cursor {
 public:
  pool_cursor(const remote_payload& where, std::size_t bytes) noexcept
      : where_(where), window_(bytes) {
    if (where.pieces == 0) window_.add({where.pool - 1, where.offset, bytes});
  }

  [[nodiscard]] std::size_t remaining() const noexcept { return window_.remaining(); }

  /// Returns the number of next pieces, as this process sees them: at most `limit`
  /// bytes. `held` keeps them mapped. If 0, `wrong` says what the peer did; if it did
  /// nothing wrong, this process cannot reach them.
  [[nodiscard]] std::size_t fill(shm::pool_exchange& pools, std::span<iovec> entries,
                                 std::size_t limit,
                                 std::shared_ptr<shm::mapped_pool>& held,
                                 const char*& wrong);
  void advance(std::size_t bytes) noexcept { window_.advance(bytes); }

 private:
  [[nodiscard]] bool fetch(shm::pool_exchange& pools, const char*& wrong);

  remote_payload where_;
  std::uint64_t fetched_ = 0;
  piece_window window_;
};

}  // namespace manyworlds::inline v0::detail::host
