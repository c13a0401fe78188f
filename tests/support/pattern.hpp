// Bytes that differ with their place and the seed: a piece that is missing, doubled or
// out of place shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace manyworlds::testing {

inline std::vector<std::uint8_t> pattern(std::size_t bytes, unsigned seed = 1) {
  std::vector<std::uint8_t> made(bytes);
  std::uint32_t x = seed * 2654435761U + 1;
  for (auto& b : made) {
    x = x * 1664525U + 1013904223U;
    b = static_cast<std::uint8_t>(x >> 24);
  }
  return made;
}

}  // namespace manyworlds::testing
