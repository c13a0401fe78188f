// Known views: memory and streams that were checked already.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "manyworlds/memory/device_view.hpp"
#include "nccl/view_checks.hpp"

namespace manyworlds::inline v0::detail::nccl {

/// Memory and streams that were found to belong to one device, so that operations on the
/// same views need not go to the launching thread and back first. Remembers addresses,
/// not sizes: CUDA is asked about the first byte only. Memory that was freed since and is
/// another device's now is still believed; NCCL then fails and the world breaks.
class known_views {
 public:
  [[nodiscard]] bool has(std::span<const const_device_view> views) const noexcept {
    for (const const_device_view& v : checked_views(views)) {
      if (!v.empty() && places_[place_of(v)] != seen_as(v)) return false;
    }
    return true;
  }
  void add(std::span<const const_device_view> views) noexcept {
    for (const const_device_view& v : checked_views(views)) {
      if (!v.empty()) places_[place_of(v)] = seen_as(v);
    }
  }

 private:
  struct seen {
    const void* memory = nullptr;
    CUstream_st* stream = nullptr;
    bool operator==(const seen&) const = default;
  };

  static constexpr unsigned place_bits = 8;

  [[nodiscard]] static seen seen_as(const const_device_view& v) noexcept {
    return {v.data(), v.stream().handle()};
  }
  // Fibonacci hashing: views mostly differ in the middle of their addresses.
  [[nodiscard]] static std::size_t place_of(const const_device_view& v) noexcept {
    const auto bits = std::bit_cast<std::uintptr_t>(v.data()) ^
                      std::rotl(std::bit_cast<std::uintptr_t>(v.stream().handle()), 24);
    return (bits * 0x9e37'79b9'7f4a'7c15U) >> (64 - place_bits);
  }

  std::array<seen, std::size_t{1} << place_bits> places_{};
};

}  // namespace manyworlds::inline v0::detail::nccl
