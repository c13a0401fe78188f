// Pool cursor: walks an offered payload that lies in shared pools of its sender.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "../link/pool_exchange.hpp"
#include "cell_frame.hpp"

namespace manyworlds::inline v0::host {

/// Everything here is what a peer says of its own pools: whatever it says, only they are
/// read, and no more of them than the message has bytes.
class pool_cursor {
 public:
  pool_cursor(const remote_payload& where, std::size_t bytes) noexcept
      : where_(where), remaining_(bytes) {
    if (where.pieces > 0) return;
    window_[0] = {where.pool - 1, where.offset, bytes};
    in_window_ = 1;
  }

  [[nodiscard]] std::size_t remaining() const noexcept { return remaining_; }

  /// The next pieces, as this process sees them, at most `entries` many and `limit`
  /// bytes; `held` keeps them there. None: `wrong` says what the peer did, or if it did
  /// nothing, they cannot be had here.
  [[nodiscard]] std::size_t fill(shm::pool_exchange& pools, std::span<iovec> entries,
                                 std::size_t limit,
                                 std::shared_ptr<shm::mapped_pool>& held,
                                 const char*& wrong);
  void advance(std::size_t bytes) noexcept;

 private:
  static constexpr std::size_t window_size = 64;

  [[nodiscard]] bool fetch(shm::pool_exchange& pools, const char*& wrong);

  remote_payload where_;
  std::size_t remaining_;
  std::uint64_t fetched_ = 0;
  std::array<pool_piece, window_size> window_;
  std::size_t first_ = 0;
  std::size_t in_window_ = 0;
};

}  // namespace manyworlds::inline v0::host
