// What the tests of streams share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <system_error>
#include <vector>

#include "io/reactor_fixture.hpp"

namespace manyworlds::testing {

inline std::vector<std::byte> pattern(std::size_t size, std::uint32_t seed = 1) {
  std::vector<std::byte> bytes(size);
  for (auto& b : bytes)
    b = static_cast<std::byte>((seed = seed * 1664525u + 1013904223u) >> 24);
  return bytes;
}

inline task<io_result> receive_once(stream& s, std::span<std::byte> into) {
  co_return co_await s.receive_some(into);
}
inline task<io_result> send_once(stream& s, std::span<const std::byte> from) {
  co_return co_await s.send_some(from);
}

/// Receives until the end of the stream, in small pieces.
inline task<std::vector<std::byte>> receive_rest(stream& s) {
  std::vector<std::byte> all;
  std::vector<std::byte> piece(50'000);
  for (;;) {
    const io_result some = co_await s.receive_some(piece);
    if (!some.ok()) throw std::system_error(some.error(), std::generic_category());
    if (some.count() == 0) break;
    all.insert(all.end(), piece.begin(), piece.begin() + static_cast<long>(some.count()));
  }
  co_return all;
}

inline int descriptor_of(const socket& s) { return static_cast<int>(s.handle()); }

}  // namespace manyworlds::testing
