// Payload cursor: walks an offered payload where its sender has it: in the memory of its
// process, or in pools that it shares.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "host/cell_frame.hpp"
#include "link/pool_exchange.hpp"
#include "link/remote_memory.hpp"

namespace manyworlds::inline v0::detail::host {

/// Walks what a peer says of its payload. Whatever it says, only that peer's memory or
/// its pools are read, and at most the message's number of bytes. It knows a window of a
/// list of pieces at a time, since that can be long.
class payload_cursor {
 public:
  /// The most pieces that are known at a time.
  static constexpr std::size_t window = 64;
  enum class place : std::uint8_t { memory, pools };

  payload_cursor(const remote_payload& where, std::size_t bytes, place in) noexcept;

  [[nodiscard]] bool is_in_pools() const noexcept { return in_ == place::pools; }
  /// Returns how much of the payload is left, also beyond the window.
  [[nodiscard]] std::size_t remaining() const noexcept { return remaining_; }

  /// Returns the number of next pieces, of at most `limit` bytes, at the addresses that
  /// they have in the peer. 0 says that its views end before the payload does, or cannot
  /// be read (`error` is set), or that only empty ones were seen so far: `error` is
  /// EAGAIN, and the next call looks at those behind them. Precondition: the payload is
  /// in memory.
  [[nodiscard]] std::size_t fill_from_memory(const shm::remote_memory& from,
                                             std::span<iovec> entries, std::size_t limit,
                                             int& error);
  /// Returns the number of next pieces, as this process sees them: at most `limit`
  /// bytes. `held` keeps them mapped. If 0, `wrong` says what the peer did; if it did
  /// nothing wrong, this process cannot reach them. Precondition: the payload is in
  /// pools.
  [[nodiscard]] std::size_t fill_from_pools(shm::pool_exchange& pools,
                                            std::span<iovec> entries, std::size_t limit,
                                            std::shared_ptr<shm::mapped_pool>& held,
                                            const char*& wrong);
  /// Consumes `bytes`. Precondition: the window holds at least that many.
  void advance(std::size_t bytes) noexcept;

 private:
  [[nodiscard]] bool fetch(const shm::remote_memory& from, int& error);
  [[nodiscard]] bool fetch(shm::pool_exchange& pools, const char*& wrong);
  [[nodiscard]] std::span<const pool_piece> known() const noexcept {
    return std::span(pieces_).subspan(first_, end_ - first_);
  }
  void forget_known() noexcept { first_ = end_ = 0; }
  void add(const pool_piece& piece) noexcept;

  remote_payload where_;
  place in_;
  std::size_t remaining_;
  std::uint64_t fetched_ = 0;
  /// A piece that lies in no pool has 0 as its name, and its address as its offset.
  std::array<pool_piece, window> pieces_;
  std::size_t first_ = 0;
  std::size_t end_ = 0;
};

}  // namespace manyworlds::inline v0::detail::host
