/// View cursor: a place within a list of views, to move its bytes in slices.
#pragma once

#include <sys/uio.h>

#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>

#include "manyworlds/detail/view_list.hpp"

namespace manyworlds::inline v0::detail {

/// Reads or fills a list from front to back, in the slices that a transport chooses.
/// Views of zero length are never seen. Copies are independent places in the same list.
/// Lifetime: the views that it was made from must outlive it.
template <class View>
class basic_view_cursor {
 public:
  using byte =
      std::conditional_t<std::same_as<View, buffer_view>, std::byte, const std::byte>;

  basic_view_cursor() noexcept = default;
  explicit basic_view_cursor(const basic_view_list<View>& list);

  /// Returns the bytes from here to the end.
  std::size_t remaining() const noexcept { return remaining_; }
  bool at_end() const noexcept { return remaining_ == 0; }

  /// Returns the longest piece in one place from here on, of at most `max_bytes`. It is
  /// empty at the end.
  std::span<byte> front(std::size_t max_bytes) const noexcept;

  /// Describes at most `max_bytes` next bytes for readv, writev and similar calls.
  /// Returns the number of entries used. It does not move: advance by what the kernel
  /// reports. The kernel does not write through entries of a write, so they may stand for
  /// const memory.
  std::size_t fill(std::span<iovec> entries, std::size_t max_bytes) const noexcept;

  /// Moves on. Throws std::out_of_range beyond the end.
  void advance(std::size_t bytes);

 private:
  const View* view_ = nullptr;
  std::size_t offset_ = 0;
  std::size_t remaining_ = 0;
};

/// The cursor of receives, which points at memory that may be written.
using view_cursor = basic_view_cursor<buffer_view>;
/// The cursor of sends.
using const_view_cursor = basic_view_cursor<const_buffer_view>;

/// Copies at most `max_bytes`, moves both past them and returns how many. It copies less
/// only where one of them ends. Precondition: the memory of the two does not overlap.
std::size_t copy_bytes(const_view_cursor& source, view_cursor& destination,
                       std::size_t max_bytes);

extern template class basic_view_cursor<buffer_view>;
extern template class basic_view_cursor<const_buffer_view>;

}  // namespace manyworlds::inline v0::detail
