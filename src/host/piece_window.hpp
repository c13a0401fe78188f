// Piece window: the pieces that are read next of a payload in its sender's memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "host/cell_frame.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::host {

/// Holds a part of a list of pieces, which can be long. A piece that lies in no pool
/// has 0 as its name, and its address as its offset.
class piece_window {
 public:
  static constexpr std::size_t most = 64;

  explicit piece_window(std::size_t bytes) noexcept : remaining_(bytes) {}

  /// Returns how much of the payload is left, also beyond the window.
  [[nodiscard]] std::size_t remaining() const noexcept { return remaining_; }
  [[nodiscard]] std::span<const pool_piece> pieces() const noexcept {
    return std::span(pieces_).subspan(first_, end_ - first_);
  }
  void clear() noexcept { first_ = end_ = 0; }
  void add(const pool_piece& piece) noexcept {
    MW_ASSERT(end_ < most, "a window holds a bounded number of pieces");
    pieces_[end_++] = piece;
  }

  /// Consumes `bytes`. Precondition: the window holds at least that many.
  void advance(std::size_t bytes) noexcept {
    MW_ASSERT(bytes <= remaining_, "a cursor never passes the end of its payload");
    remaining_ -= bytes;
    while (bytes > 0) {
      MW_ASSERT(first_ < end_, "a cursor advances only within the pieces of its window");
      pool_piece& at = pieces_[first_];
      const std::size_t step = std::min<std::uint64_t>(at.bytes, bytes);
      at.offset += step;
      at.bytes -= step;
      bytes -= step;
      if (at.bytes == 0) ++first_;
    }
  }

 private:
  std::size_t remaining_;
  std::array<pool_piece, most> pieces_;
  std::size_t first_ = 0;
  std::size_t end_ = 0;
};

}  // namespace manyworlds::inline v0::detail::host
