// Bytes that differ with their place and the seed: a piece that is missing, doubled or
// out of place shows. Made and compared by memcpy and memcmp, which a sanitizer checks
// once for the whole: byte by byte, half of the time of `host` under it went here.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace manyworlds::testing {

inline std::vector<std::uint8_t> pattern(std::size_t bytes, unsigned seed = 1) {
  // A prime: no piece of an even size lies a period beside its place.
  constexpr std::size_t period = 65'521;
  std::vector<std::uint8_t> made(bytes);
  std::uint32_t x = seed * 2654435761U + 1;
  const std::size_t first = std::min(bytes, period);
  for (std::uint8_t& b : std::span(made).first(first)) {
    x = x * 1664525U + 1013904223U;
    b = static_cast<std::uint8_t>(x >> 24);
  }
  for (std::size_t at = first; at < bytes; at += period) {
    std::memcpy(made.data() + at, made.data(), std::min(period, bytes - at));
  }
  return made;
}

/// Says whether each byte is `value`.
inline bool all_are(std::span<const std::uint8_t> bytes, std::uint8_t value) {
  return bytes.empty() ||
         (bytes.front() == value &&
          std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

}  // namespace manyworlds::testing
