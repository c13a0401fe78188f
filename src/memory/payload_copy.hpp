// Copying of payloads: as fast wherever they stand, and past the caches if they are too
// large for these.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "memory/view_cursor.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace manyworlds::inline v0::detail {

/// Says whether the target lies up to 31 bytes behind the source, counted within their
/// pages.
[[nodiscard]] inline bool is_just_behind(const void* into, const void* from) noexcept {
  constexpr std::uintptr_t page = 4096;
  const std::uintptr_t behind =
      (reinterpret_cast<std::uintptr_t>(into) - reinterpret_cast<std::uintptr_t>(from)) %
      page;
  return behind != 0 && behind < 32;
}

/// Says whether the string instruction (rep movsb) copies between these addresses at a
/// tenth of its speed. AMD's Zen 3 and 4 do so to a place just behind (sourceware bug
/// 30994). From 4 KiB on memcpy is that instruction, and memory that malloc has mapped
/// begins 16 bytes behind a page. Measured on Zen 3: 64 KiB 30 us in place of 1.7 within
/// a process, 36 in place of 6 out of another one's page.
[[nodiscard]] inline bool is_slow_by_string([[maybe_unused]] const void* into,
                                            [[maybe_unused]] const void* from) noexcept {
#if defined(__x86_64__)
  static const bool is_zen = [] {
    __builtin_cpu_init();
    return __builtin_cpu_is("amdfam19h") != 0;
  }();
  return is_just_behind(into, from) && is_zen;
#else
  return false;
#endif
}

#if defined(__SSE2__)
/// Copies whole lines by four vectors each, which `store(into, vector)` writes, and the
/// bytes before and behind them by memcpy. Target lines are aligned.
template <class Store>
void copy_by_lines(std::byte* into, const std::byte* from, std::size_t bytes,
                   Store store) noexcept {
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
    store(target, a);
    store(target + 1, b);
    store(target + 2, c);
    store(target + 3, d);
  }
  std::memcpy(into, from, bytes);
}
#endif

/// Copies like memcpy, and as fast wherever both stand. Precondition: neither is null,
/// and they do not overlap.
inline void copy_payload(void* into, const void* from, std::size_t bytes) noexcept {
#if defined(__SSE2__)
  constexpr std::size_t shortest_by_string = 2048;
  if (bytes >= shortest_by_string && is_slow_by_string(into, from)) {
    copy_by_lines(static_cast<std::byte*>(into), static_cast<const std::byte*>(from),
                  bytes, [](__m128i* at, __m128i value) { _mm_store_si128(at, value); });
    return;
  }
#endif
  std::memcpy(into, from, bytes);
}

/// Copies like memcpy, by non-temporal (streaming) stores: they write to memory without
/// fetching its old content and without evicting other data from the caches. Half as
/// fast as memcpy for what fits the caches, half again as fast for what does not.
inline void copy_past_caches(std::byte* into, const std::byte* from,
                             std::size_t bytes) noexcept {
#if defined(__SSE2__)
  copy_by_lines(into, from, bytes,
                [](__m128i* at, __m128i value) { _mm_stream_si128(at, value); });
  // Streaming stores are not ordered: the fence completes them before later stores.
  _mm_sfence();
#else
  std::memcpy(into, from, bytes);
#endif
}

/// Copies into memory that another CPU reads next, again and again. Each line that is
/// written is fetched from the caches of that CPU first. Where these are far it is faster
/// to go past the caches, which takes the same time everywhere. The time of a copy tells
/// it, since virtual CPUs are moved. Measured on Zen 3, written and read in slices of 8
/// KiB: 64 KiB through the caches 4.5 us near and 20 far, past them 8; 16 KiB 1.6, 6.2
/// and 2.9.
template <class Clock>
class basic_copy_to_reader {
 public:
  void copy(void* into, const void* from, std::size_t bytes) noexcept {
    if (bytes < shortest) return copy_payload(into, from, bytes);
    const auto begin = Clock::now();
    if (goes_past()) {
      copy_past_caches(static_cast<std::byte*>(into), static_cast<const std::byte*>(from),
                       bytes);
    } else {
      copy_payload(into, from, bytes);
    }
    const std::chrono::duration<double, std::nano> took = Clock::now() - begin;
    judge(took.count() / static_cast<double>(bytes));
  }
  /// Says whether the next copy goes past the caches.
  [[nodiscard]] bool goes_past() const noexcept { return past_ > 0; }

 private:
  /// Below this the clock costs more than may be gained.
  static constexpr std::size_t shortest = 4096;
  /// Nanoseconds a byte. A copy that took longer is worth trying the other way.
  static constexpr double slow = 0.125;
  static constexpr unsigned until_next_look = 16;

  void judge(double took) noexcept {
    if (!goes_past()) {
      if (took <= slow) return;
      through_caches_ = took;
      past_ = until_next_look;
    } else {
      // Slow for another reason, such as memory that is touched for the first time.
      past_ = took < through_caches_ ? past_ - 1 : 0;
    }
  }

  /// How many copies still go past the caches, before the other way is tried again.
  unsigned past_ = 0;
  /// What the last copy through the caches took that was slow.
  double through_caches_ = 0;
};
using copy_to_reader = basic_copy_to_reader<std::chrono::steady_clock>;

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
      copy_payload(place.data(), from, place.size());
    }
    target.advance(place.size());
    from += place.size();
    bytes -= place.size();
  }
}

}  // namespace manyworlds::inline v0::detail
