// Copying what is too large for the caches.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "manyworlds/memory/view_cursor.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace manyworlds::inline v0::host {

/// As memcpy, by non-temporal (streaming) stores: what is written goes to memory without
/// its old content being fetched first, and without driving other things out of the
/// caches. Half as fast as memcpy for what fits them, half again as fast for what does
/// not.
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
  // Such stores are not ordered: nobody may hear of them before they are there.
  _mm_sfence();
#endif
  std::memcpy(into, from, bytes);
}

/// A payload that is larger is not kept in the caches on its way.
inline constexpr std::size_t largest_cached = std::size_t{16} * 1024 * 1024;

/// A part of a payload of `whole` bytes, to where it belongs; moves the cursor.
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

}  // namespace manyworlds::inline v0::host
