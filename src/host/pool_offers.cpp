#include "host/pool_offers.hpp"

#include <cstring>
#include <memory>
#include <optional>
#include <utility>

namespace manyworlds::inline v0::detail::host {

void pool_offers::describe(const const_view_list& source, std::uint64_t id,
                           remote_payload& where) {
  const const_buffer_view* first = nullptr;
  std::size_t filled = 0;
  for (std::size_t i = 0; i < source.size() && filled < 2; ++i) {
    if (source[i].empty()) continue;
    if (!first) first = &source[i];
    ++filled;
  }
  if (!first) return;
  std::shared_ptr<pool_memory> pool =
      link_.pools().find(first->data(), first->size_bytes());
  if (!pool) return;
  const std::optional<unsigned> name = link_.pools().name_for_peer(*pool);
  if (!name) return;
  if (filled == 1) {
    where.pool = *name + 1;
    where.offset = pool->offset_of(first->data());
    return;
  }
  shared_buffer pieces = allocate_from(pool, source.size() * sizeof(pool_piece));
  std::uint64_t count = 0;
  if (pieces.size() == 0 || !fill(source, pieces.data(), count)) return;
  where.pool = *name + 1;
  where.offset = pool->offset_of(pieces.data());
  where.pieces = count;
  lists_.emplace(id, std::move(pieces));
}

bool pool_offers::fill(const const_view_list& source, std::byte* into,
                       std::uint64_t& pieces) {
  // Lists are long, and most lie in one pool.
  std::shared_ptr<pool_memory> last;
  unsigned last_name = 0;
  for (std::size_t i = 0; i < source.size(); ++i) {
    const const_buffer_view& view = source[i];
    if (view.empty()) continue;
    if (!last || !last->contains(view.data(), view.size_bytes())) {
      last = link_.pools().find(view.data(), view.size_bytes());
      const std::optional<unsigned> name =
          last ? link_.pools().name_for_peer(*last) : std::nullopt;
      if (!name) return false;
      last_name = *name;
    }
    const pool_piece piece{last_name, last->offset_of(view.data()), view.size_bytes()};
    std::memcpy(into, &piece, sizeof piece);
    into += sizeof piece;
    ++pieces;
  }
  return true;
}

}  // namespace manyworlds::inline v0::detail::host
