#include "host/pool_cursor.hpp"

#include <algorithm>
#include <cstring>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::host {

namespace {

constexpr const char* beyond = "an offer beyond the end of its shared pool";

// With this limit the products below cannot overflow.
constexpr std::uint64_t most_pieces = std::uint64_t{1} << 40;

}  // namespace

bool pool_cursor::fetch(shm::pool_exchange& pools, const char*& wrong) {
  MW_ASSERT(fetched_ <= where_.pieces, "no more pieces are fetched than there are");
  const std::uint64_t left = where_.pieces - fetched_;
  if (where_.pieces > most_pieces || left == 0) {
    wrong = "an offer of less than it says";
    return false;
  }
  const auto pool = pools.pool_of_peer(where_.pool - 1, wrong);
  if (!pool) return false;
  const std::size_t count = std::min<std::uint64_t>(left, piece_window::most);
  const std::size_t bytes = count * sizeof(pool_piece);
  const std::uint64_t begin = fetched_ * sizeof(pool_piece);
  if (where_.offset > where_.offset + begin ||
      !pool->contains(where_.offset + begin, bytes)) {
    wrong = beyond;
    return false;
  }
  const std::byte* const list = pool->at(where_.offset + begin, bytes);
  if (!list) return false;
  window_.clear();
  for (std::size_t i = 0; i < count; ++i) {
    // Each piece is read once: what is checked in the copy cannot change afterwards.
    pool_piece piece;
    std::memcpy(&piece, list + i * sizeof piece, sizeof piece);
    window_.add(piece);
  }
  fetched_ += count;
  return true;
}

std::size_t pool_cursor::fill(shm::pool_exchange& pools, std::span<iovec> entries,
                              std::size_t limit, std::shared_ptr<shm::mapped_pool>& held,
                              const char*& wrong) {
  limit = std::min(limit, remaining());
  if (limit == 0 || (window_.pieces().empty() && !fetch(pools, wrong))) return 0;
  const std::uint64_t name = window_.pieces().front().pool;
  held = pools.pool_of_peer(name, wrong);
  if (!held) return 0;
  std::size_t used = 0;
  // One pool at a time: only the held pool is read.
  for (const pool_piece& piece : window_.pieces()) {
    if (used == entries.size() || limit == 0 || piece.pool != name) break;
    const std::size_t step = std::min<std::uint64_t>(piece.bytes, limit);
    if (step == 0 || !held->contains(piece.offset, step)) {
      wrong = step == 0 ? "an empty piece of an offer" : beyond;
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
