// Device ticket: the values that operations on a device give.
#pragma once

#include <cstddef>
#include <cstdint>

#include "manyworlds/time.hpp"

namespace manyworlds::inline v0 {

/// A place in the order in which a world's operations were handed to its stream.
/// `enqueue()` gives it.
class ticket {
 public:
  constexpr ticket() noexcept = default;
  constexpr ticket(std::uint64_t epoch, std::uint64_t number) noexcept
      : epoch_(epoch), number_(number) {}
  [[nodiscard]] constexpr std::uint64_t epoch() const noexcept { return epoch_; }
  [[nodiscard]] constexpr std::uint64_t number() const noexcept { return number_; }

 private:
  std::uint64_t epoch_ = 0;
  std::uint64_t number_ = 0;
};

/// Tells what a world's communicator cost.
class device_costs {
 public:
  duration time{0};  ///< to make the communicator and connect the peers
  /// Device memory that was used then and not before. It includes what other work on
  /// the device allocated meanwhile.
  std::size_t bytes = 0;
  int version = 0;  ///< of NCCL, as ncclGetVersion gives it
};

}  // namespace manyworlds::inline v0
