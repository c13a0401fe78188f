/// A place within a list of views, for moving its bytes in slices.
#pragma once

#include <sys/uio.h>

#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>

#include "manyworlds/memory/view_list.hpp"

namespace manyworlds::inline v0 {

/// Reads or fills a list from front to back, however its transport cuts it. Views of zero
/// length are never seen. Copies are independent places in the same list; the views it
/// was made from must outlive it.
template <class View>
class basic_view_cursor {
 public:
  using byte =
      std::conditional_t<std::same_as<View, buffer_view>, std::byte, const std::byte>;

  basic_view_cursor() noexcept = default;
  explicit basic_view_cursor(const basic_view_list<View>& list);

  /// Bytes from here to the end.
  std::size_t remaining() const noexcept { return remaining_; }
  bool at_end() const noexcept { return remaining_ == 0; }

  /// The longest piece in one place from here on, of at most `max_bytes`; empty at the
  /// end.
  std::span<byte> front(std::size_t max_bytes) const noexcept;

  /// Describes the next bytes for readv, writev and their kin, at most `max_bytes`, and
  /// gives the entries used. Does not move: advance by what the kernel reports. The
  /// kernel does not write through entries given to a write, so they may stand for const
  /// memory.
  std::size_t fill(std::span<iovec> entries, std::size_t max_bytes) const noexcept;

  /// Throws std::out_of_range beyond the end.
  void advance(std::size_t bytes);

 private:
  const View* view_ = nullptr;
  std::size_t offset_ = 0;
  std::size_t remaining_ = 0;
};

/// For receives: points at memory that may be written.
using view_cursor = basic_view_cursor<buffer_view>;
/// For sends.
using const_view_cursor = basic_view_cursor<const_buffer_view>;

/// Copies at most `max_bytes` and moves both past them; gives how many. Less than asked
/// only where one of them ends. The memory of the two must not overlap.
std::size_t copy_bytes(const_view_cursor& source, view_cursor& destination,
                       std::size_t max_bytes);

extern template class basic_view_cursor<buffer_view>;
extern template class basic_view_cursor<const_buffer_view>;

}  // namespace manyworlds::inline v0
