// Copying of data that is too large for the caches.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "memory/view_cursor.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace manyworlds::inline v0::detail::host {

/// Copies like memcpy, by non-temporal (streaming) stores: they write to memory without
/// fetching its old content and without evicting other data from the caches. Half as
/// fast as memcpy for what fits the caches, half again as fast for what does not.
inline void copy_past_caches(std::byte* into, const std::byte* from,
                             std::size_t bytes) noexcept {
#if defined(__SSE2__)
  constexpr std::size_t line = 64;
  const std::size_t before =
      std::min(bytes, (line - reinterpret_cast<std::uintptr_t>(into) % line) % line);
  std::memcpy(into, from, before);
  into += before;
  from += before;
  bytes -= before;
  for (; bytes >= line; into += line, from += line, bytes -= line) {
    const auto* source = reinterpret_cast<const __m128i*>(from);
    auto* target = reinterpret_cast<__m128i*>(into);
    const __m128i a = _mm_loadu_si128(source);
    const __m128i b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2);
    const __m128i d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  // Streaming stores are not ordered: the fence completes them before later stores.
  _mm_sfence();
#endif
  std::memcpy(into, from, bytes);
}

/// A larger payload is not kept in the caches on its way.
inline constexpr std::size_t largest_cached = std::size_t{16} * 1024 * 1024;

/// Copies a part of a payload of `whole` bytes to its place, and moves the cursor.
inline void copy_part(const std::byte* from, std::size_t bytes, view_cursor& target,
                      std::size_t whole) {
  while (bytes > 0) {
    const auto place = target.front(bytes);
    if (place.empty()) return;
    if (whole > largest_cached) {
      copy_past_caches(place.data(), from, place.size());
    } else {
      std::memcpy(place.data(), from, place.size());
    }
    target.advance(place.size());
    from += place.size();
    bytes -= place.size();
  }
}

}  // namespace manyworlds::inline v0::detail::host
