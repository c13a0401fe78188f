#include "host/remote_cursor.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <type_traits>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::host {

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

/// Limits the windows in a row that hold only empty views: more would keep us busy.
constexpr unsigned most_empty = 1024;

bool remote_cursor::fetch(const shm::remote_memory& from, int& error) {
  for (unsigned empty = 0; fetched_ < where_.views && empty < most_empty; ++empty) {
    const std::size_t count =
        std::min<std::uint64_t>(where_.views - fetched_, piece_window::most);
    std::array<raw_view, piece_window::most> raw;
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
    window_.clear();
    for (std::size_t i = 0; i < count; ++i) {
      const std::optional<dtype> type = dtype_from_wire(raw[i].type);
      if (!type) {
        // The next look at the same view finds the same.
        window_.clear();
        fetched_ -= count;
        return false;
      }
      // A view may claim more elements than there are bytes left: the product must not
      // overflow.
      const std::uint64_t elements = std::min<std::uint64_t>(raw[i].count, remaining());
      if (elements > 0) window_.add({0, raw[i].data, elements * size_of(*type)});
    }
    if (!window_.pieces().empty()) return true;
  }
  return false;
}

std::size_t remote_cursor::fill(const shm::remote_memory& from, std::span<iovec> entries,
                                std::size_t limit, int& error) {
  limit = std::min(limit, remaining());
  if (window_.pieces().empty() && limit > 0 && !fetch(from, error)) return 0;
  std::size_t used = 0;
  for (const pool_piece& piece : window_.pieces()) {
    if (used == entries.size() || limit == 0) break;
    const std::size_t step = std::min<std::uint64_t>(piece.bytes, limit);
    entries[used++] = {reinterpret_cast<void*>(piece.offset), step};
    limit -= step;
  }
  return used;
}

}  // namespace manyworlds::inline v0::detail::host
