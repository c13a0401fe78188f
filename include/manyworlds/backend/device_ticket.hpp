// Device ticket: what operations on a device give to who awaits them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "manyworlds/coro/timer_queue.hpp"

namespace manyworlds::inline v0 {

/// A place in the order in which a world's operations were handed to its stream, as
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

/// What a world's communicator cost.
class device_costs {
 public:
  /// Of making the communicator and connecting the peers.
  duration time{0};
  /// Device memory that was used then and not before; other work on the device counts
  /// with it.
  std::size_t bytes = 0;
  /// NCCL's version, as ncclGetVersion gives it.
  int version = 0;
};

}  // namespace manyworlds::inline v0
