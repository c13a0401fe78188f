#include "memory/view_cursor.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "manyworlds/detail/assertion.hpp"
#include "memory/payload_copy.hpp"

namespace manyworlds::inline v0::detail {

// While bytes remain, `view_` has some of them behind `offset_`, and the view with the
// next ones lies ahead: the loops below need no other end.

template <class View>
basic_view_cursor<View>::basic_view_cursor(const basic_view_list<View>& list)
    : view_{list.empty() ? nullptr : &list[0]}, remaining_{list.total_bytes()} {
  advance(0);
}

template <class View>
auto basic_view_cursor<View>::front(std::size_t max_bytes) const noexcept
    -> std::span<byte> {
  if (remaining_ == 0) return {};
  MW_ASSERT(view_ && offset_ < view_->size_bytes(),
            "a cursor stands within a view while bytes remain");
  return {static_cast<byte*>(view_->data()) + offset_,
          std::min(max_bytes, view_->size_bytes() - offset_)};
}

template <class View>
std::size_t basic_view_cursor<View>::fill(std::span<iovec> entries,
                                          std::size_t max_bytes) const noexcept {
  auto left = std::min(max_bytes, remaining_);
  const auto* view = view_;
  auto offset = offset_;
  std::size_t used = 0;
  for (; left != 0 && used < entries.size();
       view = detail::view_at(view, 1), offset = 0) {
    MW_ASSERT(offset <= view->size_bytes(), "an entry begins within its view");
    const auto length = std::min(left, view->size_bytes() - offset);
    if (length == 0) continue;
    auto* const start = static_cast<byte*>(view->data()) + offset;
    entries[used++] = {const_cast<std::byte*>(start), length};
    left -= length;
  }
  return used;
}

template <class View>
void basic_view_cursor<View>::advance(std::size_t bytes) {
  if (bytes > remaining_) {
    throw std::out_of_range("view cursor: " + std::to_string(bytes) +
                            " bytes forward with " + std::to_string(remaining_) +
                            " left");
  }
  remaining_ -= bytes;
  offset_ += bytes;
  if (remaining_ == 0) return;
  for (; offset_ >= view_->size_bytes(); view_ = detail::view_at(view_, 1)) {
    offset_ -= view_->size_bytes();
  }
}

std::size_t copy_bytes(const_view_cursor& source, view_cursor& destination,
                       std::size_t max_bytes) {
  std::size_t copied = 0;
  while (copied < max_bytes) {
    const auto to = destination.front(max_bytes - copied);
    const auto from = source.front(to.size());
    if (from.empty()) break;
    copy_payload(to.data(), from.data(), from.size());
    source.advance(from.size());
    destination.advance(from.size());
    copied += from.size();
  }
  return copied;
}

template class basic_view_cursor<buffer_view>;
template class basic_view_cursor<const_buffer_view>;

}  // namespace manyworlds::inline v0::detail
