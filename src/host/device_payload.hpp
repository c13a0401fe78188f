// Device payload: the payload of a message that another backend brings. The message's
// own content is a description of it, which begins with a prefix.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "host/frame.hpp"

namespace manyworlds::inline v0::detail::host {

/// What each description begins with.
struct device_payload_prefix {
  std::uint64_t bytes = 0;
  dtype type = dtype::uint8;
};

inline constexpr std::size_t device_payload_prefix_size = 16;

/// Writes, little-endian: bytes u64, element type u8, seven zeros.
inline void encode(const device_payload_prefix& p,
                   std::span<std::byte, device_payload_prefix_size> into) noexcept {
  std::uint64_t left = p.bytes;
  for (std::size_t i = 0; i < 8; ++i, left >>= 8) into[i] = static_cast<std::byte>(left);
  std::memset(into.data() + 8, 0, 8);
  into[8] = static_cast<std::byte>(p.type);
}

/// Reads a description as if a stranger wrote it; returns nothing if it is invalid.
[[nodiscard]] inline std::optional<device_payload_prefix> decode_prefix(
    std::span<const std::byte> description) noexcept {
  if (description.size() < device_payload_prefix_size) return std::nullopt;
  device_payload_prefix p;
  for (std::size_t i = 8; i > 0; --i) {
    p.bytes = p.bytes << 8 | static_cast<std::uint64_t>(description[i - 1]);
  }
  const auto type = dtype_from_wire(static_cast<std::uint8_t>(description[8]));
  if (!type || p.bytes > largest_message || p.bytes % size_of(*type) != 0) {
    return std::nullopt;
  }
  p.type = *type;
  return p;
}

}  // namespace manyworlds::inline v0::detail::host
