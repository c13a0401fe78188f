// Messages that show when they are mixed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace manyworlds::process_tests {

/// Numbered at both ends, so that a mixture of two messages shows.
struct numbered {
  explicit numbered(std::size_t bytes)
      : data(std::max<std::size_t>(bytes / 8, 2), 0x5a5a5a5a5a5a5a5a) {}
  void number(std::uint64_t n) { data.front() = data.back() = n; }
  [[nodiscard]] bool is(std::uint64_t n) const {
    return data.front() == n && data.back() == n;
  }
  std::vector<std::uint64_t> data;
};

}  // namespace manyworlds::process_tests
