/// View lists: one message with bytes in many places, such as paged KV blocks.
#pragma once

#include <concepts>
#include <cstddef>
#include <ranges>
#include <utility>
#include <vector>

#include "manyworlds/memory/buffer_view.hpp"
#include "manyworlds/memory/device_view.hpp"

namespace manyworlds::inline v0::detail {

template <class R, class View>
concept views_in_a_row = std::ranges::contiguous_range<R> &&
                         std::ranges::sized_range<R> &&
                         std::derived_from<std::ranges::range_value_t<R>, View> &&
                         sizeof(std::ranges::range_value_t<R>) == sizeof(View);

struct list_extent {
  std::size_t bytes = 0;
  dtype type = dtype::uint8;
};

/// Returns view `index` of an array that may hold a class derived from `View`.
template <class View>
const View* view_at(const View* first, std::size_t index) noexcept {
  // Pointer arithmetic on a base class is undefined even where the sizes agree, as
  // `views_in_a_row` has made sure: step over bytes instead.
  const auto* bytes = reinterpret_cast<const std::byte*>(first);
  return reinterpret_cast<const View*>(bytes + index * sizeof(View));
}

/// Throws std::invalid_argument when the bytes do not fit a size.
list_extent measure(const const_buffer_view* first, std::size_t count);
list_extent measure(const const_device_view* first, std::size_t count);

[[noreturn]] void throw_no_such_view(std::size_t index, std::size_t size);

template <class View>
class basic_gather_list;

/// A list as a transport sees it: its views, their bytes and the type that they share.
///
/// Lifetime: it owns neither the views nor their memory. Views of zero length are allowed
/// anywhere.
template <class View>
class basic_view_list {
 public:
  basic_view_list() noexcept = default;

  /// Makes a list over a span, vector or array of views. It looks at each once. Throws
  /// std::invalid_argument when their bytes do not fit a size.
  template <detail::views_in_a_row<View> R>
  requires std::ranges::borrowed_range<R> basic_view_list(R&& views)
      : basic_view_list{std::ranges::data(views),
                        static_cast<std::size_t>(std::ranges::size(views))} {}

  // The views would be gone before the await ends; an operation takes them by value
  // instead.
  template <detail::views_in_a_row<View> R>
  requires(!std::ranges::borrowed_range<R>) basic_view_list(R&&)
  = delete;

  /// Makes a list over one view, which must stay where it is, without adding anything up.
  [[nodiscard]] static basic_view_list of_one(const View& only) noexcept {
    return basic_view_list(only);
  }

  /// Counts views, not elements.
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }

  /// Returns a view. Throws std::out_of_range if there is none at `index`.
  const View& operator[](std::size_t index) const {
    if (index >= size_) detail::throw_no_such_view(index, size_);
    return *detail::view_at(first_, index);
  }

  std::size_t total_bytes() const noexcept { return extent_.bytes; }
  /// Returns the type of all views that have elements, or uint8 where they differ.
  dtype type() const noexcept { return extent_.type; }
  /// Counts elements of `type()`.
  std::size_t count() const noexcept { return extent_.bytes / size_of(extent_.type); }

 private:
  friend class basic_gather_list<View>;

  basic_view_list(const View* first, std::size_t size)
      : first_{first}, size_{size}, extent_{detail::measure(first, size)} {}
  basic_view_list(const View* first, std::size_t size,
                  detail::list_extent extent) noexcept
      : first_{first}, size_{size}, extent_{extent} {}
  explicit basic_view_list(const View& only) noexcept : first_{&only}, size_{1} {
    extent_.bytes = only.size_bytes();
    if (!only.empty()) extent_.type = only.type();
  }

  const View* first_ = nullptr;
  std::size_t size_ = 0;
  detail::list_extent extent_;
};

using view_list = basic_view_list<buffer_view>;
using const_view_list = basic_view_list<const_buffer_view>;

/// A list that owns its views (not their memory). A function that chooses blocks returns
/// it, so that `w.recv(blocks.layer(l), from)` needs no name for the list.
template <class View>
class basic_view_batch {
 public:
  basic_view_batch() noexcept {}
  // It is no initializer_list: g++ 12.2 refuses one in an awaited expression.
  template <class... Views>
  requires(sizeof...(Views) > 0 && (std::convertible_to<Views, View> && ...))
      basic_view_batch(Views&&... views) {
    views_.reserve(sizeof...(Views));
    (views_.push_back(std::forward<Views>(views)), ...);
  }
  explicit basic_view_batch(std::vector<View> views) noexcept
      : views_{std::move(views)} {}

  void reserve(std::size_t size) { views_.reserve(size); }
  void push_back(View view) { views_.push_back(view); }

  std::size_t size() const noexcept { return views_.size(); }
  bool empty() const noexcept { return views_.empty(); }
  const View* data() const noexcept { return views_.data(); }
  auto begin() const noexcept { return views_.begin(); }
  auto end() const noexcept { return views_.end(); }

  /// Gives the views away, to code that takes the batch by value.
  std::vector<View> take() && noexcept { return std::move(views_); }

 private:
  std::vector<View> views_;
};

using view_batch = basic_view_batch<buffer_view>;
using const_view_batch = basic_view_batch<const_buffer_view>;

}  // namespace manyworlds::inline v0::detail
