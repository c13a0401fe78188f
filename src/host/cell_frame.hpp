// Cell frame: a frame as one cell of a ring in shared memory.
#pragma once

#include <cstring>
#include <optional>

#include "host/frame.hpp"
#include "link/cell_ring.hpp"
#include "link/chunk_slab.hpp"
#include "link/offer_table.hpp"

namespace manyworlds::inline v0::detail::host {

/// The header has the layout of the wire. Content of up to `inline_bytes` follows it in
/// the cell; longer content stands in a chunk of the slab. A slice of a pulled message
/// fills several adjacent chunks.
inline constexpr std::size_t inline_bytes = 16;
inline constexpr std::size_t cell_content_limit = shm::chunk_size;
inline constexpr std::size_t cell_slice_limit = 4 * shm::chunk_size;
/// A message of up to this size goes unasked if a run of chunks is free for it: two
/// copies through the caches beat one by process_vm_readv with its answer. Near CPUs, one
/// way: 16 KiB 3.6 to 0.6 us, 64 KiB 6.8 to 2.3 us.
inline constexpr std::size_t cell_eager_limit = 8 * shm::chunk_size;

static_assert(sizeof(shm::cell_content{}.body) == frame_size + inline_bytes);

/// Returns where a frame's content stands: a head of 0 means in the cell, n + 1 from
/// chunk n on.
[[nodiscard]] inline std::optional<unsigned> chunk_of(
    const shm::cell_content& c) noexcept {
  if (c.head == 0) return std::nullopt;
  return c.head - 1;
}
inline void set_chunk(shm::cell_content& c, unsigned index) noexcept {
  c.head = index + 1;
}

/// The header of a message that is sent whole, as the words of a cell.
struct eager_header {
  dtype type = dtype::uint8;
  std::size_t head_bytes = 0;
  std::uint32_t flags = 0;
  std::uint64_t on = 0;
  std::uint64_t id = 0;
  std::uint64_t word = 0;
  std::uint64_t bytes = 0;
};

/// Writes what `encode` writes for such a frame, without looking up its fields.
inline void put_eager_header(shm::cell_content& c, const eager_header& h) noexcept {
  c.body[0] =
      little_endian(std::uint64_t{static_cast<std::uint8_t>(frame_kind::eager)} |
                    std::uint64_t{static_cast<std::uint8_t>(h.type)} << 8 |
                    std::uint64_t{h.head_bytes} << 16 | std::uint64_t{h.flags} << 32);
  c.body[1] = little_endian(h.on);
  c.body[2] = little_endian(h.id);
  c.body[3] = little_endian(h.word);
  c.body[4] = little_endian(h.bytes);
}

/// Reads the header of an eager message without flags, by far the most of them. Returns
/// false for any other frame. Its fields are a stranger's: only the kind was checked.
[[nodiscard]] inline bool get_plain_header(const shm::cell_content& c,
                                           eager_header& h) noexcept {
  const std::uint64_t first = little_endian(c.body[0]);
  constexpr std::uint64_t kind_and_flags = 0xFFFF'FFFF'0000'00FFULL;
  if ((first & kind_and_flags) != static_cast<std::uint8_t>(frame_kind::eager))
    return false;
  if ((first >> 8 & 0xFF) >= dtype_count) return false;
  h.type = static_cast<dtype>(first >> 8 & 0xFF);
  h.head_bytes = first >> 16 & 0xFFFF;
  h.on = little_endian(c.body[1]);
  h.id = little_endian(c.body[2]);
  h.word = little_endian(c.body[3]);
  h.bytes = little_endian(c.body[4]);
  return true;
}

[[nodiscard]] inline shm::cell_content cell_of(const frame& f) noexcept {
  shm::cell_content c;
  const frame_bytes raw = encode(f);
  std::memcpy(c.body.data(), raw.data(), raw.size());
  return c;
}
[[nodiscard]] inline std::span<const std::byte, frame_size> header_of(
    const shm::cell_content& c) noexcept {
  return std::span<const std::byte, frame_size>(
      reinterpret_cast<const std::byte*>(c.body.data()), frame_size);
}
[[nodiscard]] inline std::byte* inline_content(shm::cell_content& c) noexcept {
  return reinterpret_cast<std::byte*>(c.body.data()) + frame_size;
}

/// Says where an offered payload lies in its sender's memory. It stands in the offer's
/// chunk, behind the head.
struct remote_payload {
  shm::offer_ticket ticket;
  /// The address of the payload, or of an array of `views` `const_buffer_view`s.
  std::uint64_t address = 0;
  std::uint64_t views = 0;
  /// 0 unless all of the payload lies in shared pools. Otherwise the payload, or an
  /// array of `pieces` `pool_piece`s, stands at `offset` of the pool that the peer
  /// calls `pool - 1`.
  std::uint64_t pool = 0;
  std::uint64_t offset = 0;
  std::uint64_t pieces = 0;
};

/// Says the same of a payload in one place of plain memory without a head: it fits into
/// the cell, so that no chunk is needed.
struct payload_in_one_place {
  /// Generation and index. A generation of 54 bits never repeats either.
  std::uint64_t ticket = 0;
  std::uint64_t address = 0;

  static constexpr unsigned index_bits = 10;
  static constexpr std::uint64_t index_mask = (std::uint64_t{1} << index_bits) - 1;

  [[nodiscard]] static payload_in_one_place of(const remote_payload& where) noexcept {
    return {where.ticket.generation << index_bits | where.ticket.index, where.address};
  }
  [[nodiscard]] remote_payload whole() const noexcept {
    remote_payload where;
    where.ticket.index = static_cast<std::uint32_t>(ticket & index_mask);
    where.ticket.generation = ticket >> index_bits;
    where.address = address;
    return where;
  }
};
static_assert(sizeof(payload_in_one_place) == inline_bytes);
static_assert(shm::offer_table::offers <= payload_in_one_place::index_mask + 1);

/// Names a part of a payload in a shared pool by the peer's name for the pool.
struct pool_piece {
  std::uint64_t pool;
  std::uint64_t offset;
  std::uint64_t bytes;
};

}  // namespace manyworlds::inline v0::detail::host
