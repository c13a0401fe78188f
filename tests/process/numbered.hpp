// Messages that show when they are mixed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "manyworlds/memory/shared_buffer.hpp"

namespace manyworlds::process_tests {

/// Numbered at both ends, so that a mixture of two messages shows. Out of the pool, if
/// there is one.
struct numbered {
  explicit numbered(std::size_t bytes, shared_pool* pool = nullptr)
      : own(pool ? 0 : std::max<std::size_t>(bytes / 8, 2)), data(own) {
    if (pool) {
      shared = pool->allocate(std::max<std::size_t>(bytes, 16));
      data = shared.as<std::uint64_t>();
    }
    std::fill(data.begin(), data.end(), 0x5a5a5a5a5a5a5a5a);
  }
  void number(std::uint64_t n) { data.front() = data.back() = n; }
  [[nodiscard]] bool is(std::uint64_t n) const {
    return data.front() == n && data.back() == n;
  }
  std::vector<std::uint64_t> own;
  shared_buffer shared;
  std::span<std::uint64_t> data;
};

}  // namespace manyworlds::process_tests
