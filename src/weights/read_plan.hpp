// Read plan: the requests that read a part of a tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "manyworlds/weights/safetensors.hpp"

namespace manyworlds::inline v0::detail {

/// One request. Without pieces its bytes belong to `into` of the part. Pieces are copied
/// from what was read to their places.
struct planned_read {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t into = 0;
  std::span<const weight_range> pieces = {};
};

/// Gives the requests of a part, one after the other: several readers share it.
/// Lifetime: the ranges must stay.
class read_plan {
 public:
  /// The longest request.
  static constexpr std::uint64_t most_bytes = std::uint64_t{1} << 20;
  /// What lies between two pieces of one request at most: it is read for nothing, which
  /// takes as long as a request of its own.
  static constexpr std::uint64_t widest_gap = std::uint64_t{32} << 10;

  explicit read_plan(std::span<const weight_range> ranges) noexcept : ranges_(ranges) {}

  /// Returns the next request; nothing after the last.
  [[nodiscard]] std::optional<planned_read> next() noexcept;

 private:
  std::span<const weight_range> ranges_;
  std::size_t at_ = 0;
  std::uint64_t done_ = 0;  ///< of the range, which is longer than a request
};

}  // namespace manyworlds::inline v0::detail
