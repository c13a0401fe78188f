// Segment layout: where everything stands in the memory that two processes share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "link/beat_line.hpp"
#include "link/cell_ring.hpp"
#include "link/chunk_slab.hpp"
#include "link/offer_table.hpp"
#include "link/wake_up.hpp"

namespace manyworlds::inline v0::detail::shm {

/// The two processes of a link: side 0 made the segment. Direction 0 is written by side 0
/// and read by side 1.
inline constexpr int sides = 2;
inline constexpr std::size_t page_bytes = 4096;

inline constexpr std::uint64_t segment_magic =
    0x31'41'72'6f'57'79'6e'4dULL;  // "MnyWorA1"
inline constexpr std::uint32_t segment_version = 7;

/// Written by the maker at offset 0, before the peer maps the segment.
struct segment_header {
  std::uint64_t magic = segment_magic;
  std::uint32_t version = segment_version;
  std::uint32_t cells = cell_ring::capacity;
  std::uint64_t bytes = 0;
};

namespace offset {

// Fields of different writers are two lines apart, since many prefetchers fetch two
// lines.
inline constexpr std::size_t two_lines = 128;

[[nodiscard]] constexpr std::size_t of_side(std::size_t first, int side) noexcept {
  return first + static_cast<std::size_t>(side) * two_lines;
}

/// Written by the reading side: whether it sleeps, and which rings it polls.
[[nodiscard]] constexpr std::size_t receiver(int side) noexcept {
  return of_side(two_lines, side);
}
/// Written by the other side: the rings that the reading side must look at.
[[nodiscard]] constexpr std::size_t wake_ups(int side) noexcept {
  return of_side(3 * two_lines, side);
}
/// Signs of life of a side, written by its service thread.
[[nodiscard]] constexpr std::size_t beat(int side) noexcept {
  return of_side(5 * two_lines, side);
}
/// The robust futex of a side's service thread.
[[nodiscard]] constexpr std::size_t liveness(int side) noexcept {
  return of_side(7 * two_lines, side);
}

inline constexpr std::size_t slabs_begin = page_bytes;
[[nodiscard]] constexpr std::size_t slab(int direction) noexcept {
  return of_side(slabs_begin, direction);
}

inline constexpr std::size_t offers_begin = 2 * page_bytes;
[[nodiscard]] constexpr std::size_t offers(int direction) noexcept {
  return offers_begin + static_cast<std::size_t>(direction) * sizeof(offer_table);
}

/// A slot is one ring for each direction.
inline constexpr std::size_t rings_begin = offers_begin + sides * sizeof(offer_table);
[[nodiscard]] constexpr std::size_t ring(std::size_t slot, int direction) noexcept {
  return rings_begin +
         (slot * sides + static_cast<std::size_t>(direction)) * sizeof(cell_ring);
}

inline constexpr std::size_t chunks_begin =
    (ring(slot_count, 0) + page_bytes - 1) / page_bytes * page_bytes;
[[nodiscard]] constexpr std::size_t chunk(int direction, std::size_t index) noexcept {
  return chunks_begin +
         (static_cast<std::size_t>(direction) * chunk_states::chunks + index) *
             chunk_size;
}

}  // namespace offset

inline constexpr std::size_t segment_bytes = offset::chunk(sides, 0);

static_assert(offset::liveness(1) + sizeof(std::uint32_t) <= page_bytes);
static_assert(offset::slab(1) + sizeof(chunk_states) <= 2 * page_bytes);
static_assert(sizeof(chunk_states) <= offset::two_lines);
static_assert(sizeof(receiver_line<hardware_memory>) <= offset::two_lines);
static_assert(sizeof(beat_line) <= offset::two_lines);
static_assert(offset::rings_begin % page_bytes == 0);
static_assert(sizeof(segment_header) <= offset::receiver(0));
static_assert(sizeof(wake_up_line<hardware_memory>) <= offset::two_lines);
static_assert(offset::chunks_begin >= offset::ring(slot_count, 0));

}  // namespace manyworlds::inline v0::detail::shm
