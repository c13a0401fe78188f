#include "host/payload_cursor.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <type_traits>

#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/memory/buffer_view.hpp"

namespace manyworlds::inline v0::detail::host {

namespace {

constexpr const char* beyond_pool = "an offer beyond the end of its shared pool";

/// Limits the pieces of one list, so that products with it cannot overflow.
constexpr std::uint64_t most_pieces = std::uint64_t{1} << 40;

/// Limits the windows of only empty views that one step looks at: each costs a call of
/// the kernel (1 us), and more would keep the reactor (law 9).
constexpr unsigned most_empty = 32;

// The peer's views are read as they stand in its memory. The same library has the same
// layout, which is part of the segment's version.
static_assert(std::is_trivially_copyable_v<const_buffer_view>);

/// Holds a view as a peer may have written it: its type may be invalid.
struct raw_view {
  std::uint64_t data;
  std::uint64_t count;
  std::uint8_t type;
};
static_assert(sizeof(const_buffer_view) == sizeof(raw_view));
static_assert(sizeof(dtype) == sizeof(raw_view::type));

}  // namespace

payload_cursor::payload_cursor(const remote_payload& where, std::size_t bytes,
                               place in) noexcept
    : where_(where), in_(in), remaining_(bytes) {
  MW_ASSERT(in == place::memory || where.pool > 0, "a pool of the peer has a number");
  if (in == place::memory && where.views == 0) add({0, where.address, bytes});
  if (in == place::pools && where.pieces == 0) add({where.pool - 1, where.offset, bytes});
}

void payload_cursor::add(const pool_piece& piece) noexcept {
  MW_ASSERT(end_ < window, "a window holds a bounded number of pieces");
  pieces_[end_++] = piece;
}

void payload_cursor::advance(std::size_t bytes) noexcept {
  MW_ASSERT(bytes <= remaining_, "a cursor never passes the end of its payload");
  remaining_ -= bytes;
  while (bytes > 0) {
    MW_ASSERT(first_ < end_, "a cursor advances only within the pieces of its window");
    pool_piece& at = pieces_[first_];
    const std::size_t step = std::min<std::uint64_t>(at.bytes, bytes);
    at.offset += step;
    at.bytes -= step;
    bytes -= step;
    if (at.bytes == 0) ++first_;
  }
}

bool payload_cursor::fetch(const shm::remote_memory& from, int& error) {
  for (unsigned empty = 0; fetched_ < where_.views && empty < most_empty; ++empty) {
    const std::size_t count = std::min<std::uint64_t>(where_.views - fetched_, window);
    std::array<raw_view, window> raw;
    const std::size_t bytes = count * sizeof(raw_view);
    const iovec into{raw.data(), bytes};
    const iovec there{
        reinterpret_cast<void*>(where_.address + fetched_ * sizeof(raw_view)), bytes};
    const ssize_t got = from.read({&into, 1}, {&there, 1});
    if (got != static_cast<ssize_t>(bytes)) {
      error = got < 0 ? errno : EFAULT;
      return false;
    }
    fetched_ += count;
    MW_ASSERT(fetched_ <= where_.views, "no more views are fetched than there are");
    forget_known();
    for (std::size_t i = 0; i < count; ++i) {
      const std::optional<dtype> type = dtype_from_wire(raw[i].type);
      if (!type) {
        // The next look at the same view finds the same.
        forget_known();
        fetched_ -= count;
        return false;
      }
      // A view may claim more elements than there are bytes left: the product must not
      // overflow.
      const std::uint64_t elements = std::min<std::uint64_t>(raw[i].count, remaining());
      if (elements > 0) add({0, raw[i].data, elements * size_of(*type)});
    }
    if (!known().empty()) return true;
  }
  if (fetched_ < where_.views) error = EAGAIN;
  return false;
}

std::size_t payload_cursor::fill_from_memory(const shm::remote_memory& from,
                                             std::span<iovec> entries, std::size_t limit,
                                             int& error) {
  MW_ASSERT(!is_in_pools(), "what lies in pools is read through their mappings");
  limit = std::min(limit, remaining());
  if (known().empty() && limit > 0 && !fetch(from, error)) return 0;
  std::size_t used = 0;
  for (const pool_piece& piece : known()) {
    if (used == entries.size() || limit == 0) break;
    const std::size_t step = std::min<std::uint64_t>(piece.bytes, limit);
    entries[used++] = {reinterpret_cast<void*>(piece.offset), step};
    limit -= step;
  }
  return used;
}

bool payload_cursor::fetch(shm::pool_exchange& pools, const char*& wrong) {
  MW_ASSERT(fetched_ <= where_.pieces, "no more pieces are fetched than there are");
  const std::uint64_t left = where_.pieces - fetched_;
  if (where_.pieces > most_pieces || left == 0) {
    wrong = "an offer of less than it says";
    return false;
  }
  const auto pool = pools.pool_of_peer(where_.pool - 1, wrong);
  if (!pool) return false;
  const std::size_t count = std::min<std::uint64_t>(left, window);
  const std::size_t bytes = count * sizeof(pool_piece);
  const std::uint64_t begin = fetched_ * sizeof(pool_piece);
  if (where_.offset > where_.offset + begin ||
      !pool->contains(where_.offset + begin, bytes)) {
    wrong = beyond_pool;
    return false;
  }
  const std::byte* const list = pool->at(where_.offset + begin, bytes);
  if (!list) return false;
  forget_known();
  for (std::size_t i = 0; i < count; ++i) {
    // Each piece is read once: what is checked in the copy cannot change afterwards.
    pool_piece piece;
    std::memcpy(&piece, list + i * sizeof piece, sizeof piece);
    add(piece);
  }
  fetched_ += count;
  return true;
}

std::size_t payload_cursor::fill_from_pools(shm::pool_exchange& pools,
                                            std::span<iovec> entries, std::size_t limit,
                                            std::shared_ptr<shm::mapped_pool>& held,
                                            const char*& wrong) {
  MW_ASSERT(is_in_pools(), "what lies in memory is read from there");
  limit = std::min(limit, remaining());
  if (limit == 0 || (known().empty() && !fetch(pools, wrong))) return 0;
  const std::uint64_t name = known().front().pool;
  held = pools.pool_of_peer(name, wrong);
  if (!held) return 0;
  std::size_t used = 0;
  // One pool at a time: only the held pool is read.
  for (const pool_piece& piece : known()) {
    if (used == entries.size() || limit == 0 || piece.pool != name) break;
    const std::size_t step = std::min<std::uint64_t>(piece.bytes, limit);
    if (step == 0 || !held->contains(piece.offset, step)) {
      wrong = step == 0 ? "an empty piece of an offer" : beyond_pool;
      return 0;
    }
    const std::byte* const place = held->at(piece.offset, step);
    if (!place) return 0;
    entries[used++] = {const_cast<std::byte*>(place), step};
    limit -= step;
  }
  return used;
}

}  // namespace manyworlds::inline v0::detail::host
