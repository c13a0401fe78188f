/// Gather lists: bring any argument of a send or receive into one form.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <ranges>
#include <type_traits>
#include <utility>
#include <vector>

#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/view_list.hpp"
#include "manyworlds/memory/device_view.hpp"

namespace manyworlds::inline v0 {

namespace detail {

// Only the values of a temporary range's elements last: they must be views themselves,
// and not containers that a view could be made of.
template <class R, class View>
concept range_of_views = std::ranges::input_range<R> &&
    std::convertible_to<std::ranges::range_reference_t<R>, View> &&
    (std::ranges::borrowed_range<R> ||
     std::convertible_to<std::ranges::range_value_t<R>, View>);

template <class B, class View>
concept buffer_argument = std::convertible_to<B, View> ||
    std::convertible_to<B, detail::basic_view_list<View>> || range_of_views<B, View>;

// This excludes the list itself first: its conversion to a view must not be asked for
// while its own copy and move are looked for.
template <class B, class View>
concept other_than_list =
    !std::same_as<std::remove_cvref_t<B>, detail::basic_gather_list<View>>;

template <class B, class View>
concept lasting_buffer = other_than_list<B, View> && buffer_argument<B, View>;

template <class B, class View>
concept dying_buffer = other_than_list<B, View> && !buffer_argument<B, View> &&
                       buffer_argument<std::remove_reference_t<B>&, View>;

}  // namespace detail

/// Holds for what may be sent: anything that converts to a `const_buffer_view`, or a
/// range of those.
template <class B>
concept readable_buffer = detail::buffer_argument<B, const_buffer_view>;

/// Holds for what may be received into: anything that converts to a `buffer_view`, or a
/// range of those.
template <class B>
concept writable_buffer = detail::buffer_argument<B, buffer_view>;

namespace detail {

/// The views of one operation. Parameters of `send` and `recv` have this type, so that
/// they take a container, a view, a braced list of views, a `view_batch` or a span of
/// views alike.
///
/// Lifetime: it never owns the elements. Up to two views lie in the object. A longer list
/// with a name is referred to and, like the elements, must live until the await ends. A
/// temporary vector or batch is moved in; all others are copied. A move costs no
/// allocation.
///
/// Errors: std::invalid_argument if the bytes of all views do not fit a size.
template <class View>
class basic_gather_list {
 public:
  /// Makes a message of zero bytes.
  basic_gather_list() noexcept {}

  template <detail::lasting_buffer<View> B>
  basic_gather_list(B&& buffer) {
    take(std::forward<B>(buffer));
  }

  /// Takes a braced list: `w.send({head, body}, to)`.
  // It is no initializer_list: g++ 12.2 refuses one in an awaited expression.
  template <class... Views>
  requires(sizeof...(Views) > 1 && (std::convertible_to<Views, View> && ...))
      basic_gather_list(Views&&... views) {
    copy(std::array<View, sizeof...(Views)>{std::forward<Views>(views)...});
  }

  // Refuses a braced list of other things, and says what may stand in one.
  template <class... Views>
  requires(sizeof...(Views) > 1 && std::derived_from<View, const_buffer_view> &&
           !(std::convertible_to<Views, View> && ...) &&
           !(std::convertible_to<Views, const_device_view> && ...))
      basic_gather_list(Views&&...) {
    static_assert(sizeof...(Views) == 0,
                  "a list holds containers that have a name, views and mw::object(x); "
                  "what is received into must not be const. One view of a pointer is "
                  "mw::buffer_view(p, count, type)");
  }

  // The elements would be gone before the await ends: give the container a name.
  template <detail::dying_buffer<View> B>
  basic_gather_list(B&&) = delete;

  basic_gather_list(basic_gather_list&& other) noexcept { *this = std::move(other); }
  basic_gather_list& operator=(basic_gather_list&& other) noexcept;

  /// Returns the views. Lifetime: until this object is moved or destroyed.
  // It is made member by member, as `by_member` does.
  basic_view_list<View> views() const noexcept {
    return {list_.first_, list_.size_, {list_.extent_.bytes, list_.extent_.type}};
  }

  std::size_t total_bytes() const noexcept { return list_.total_bytes(); }
  dtype type() const noexcept { return list_.type(); }
  std::size_t count() const noexcept { return list_.count(); }

 private:
  using list = basic_view_list<View>;
  static constexpr std::size_t inline_views = 2;

  template <class B>
  void take(B&& buffer);

  template <class R>
  void copy(R&& views);

  void own(std::vector<View> views) {
    owned_ = std::move(views);
    list_ = list{owned_.data(), owned_.size()};
  }

  std::array<View, inline_views> inline_;
  std::vector<View> owned_;
  list list_;
};

}  // namespace detail

/// The argument of a send.
using gather_list = detail::basic_gather_list<const_buffer_view>;

/// The argument of a receive.
using scatter_list = detail::basic_gather_list<buffer_view>;

// ---------------------------------------------------------------------------------------

namespace detail {

template <class View>
[[gnu::always_inline]] inline basic_gather_list<View>& basic_gather_list<View>::operator=(
    basic_gather_list&& other) noexcept {
  if (this == &other) return *this;
  const bool is_inline = other.list_.first_ == other.inline_.data();
  MW_ASSERT(!is_inline || other.list_.size_ <= inline_views,
            "only as many views lie in the object as it has room for");
  list_ = other.views();
  if (is_inline) {
    list_.first_ = inline_.data();
    inline_[0] = other.inline_[0].by_member();
    if (list_.size_ > 1) inline_[1] = other.inline_[1];
  }
  owned_ = std::move(other.owned_);
  other.list_ = list{};
  return *this;
}

template <class View>
template <class B>
void basic_gather_list<View>::take(B&& buffer) {
  using bare = std::remove_cvref_t<B>;
  constexpr bool temporary = !std::is_lvalue_reference_v<B> && !std::is_const_v<B>;
  if constexpr (std::convertible_to<B, View>) {
    inline_[0] = std::forward<B>(buffer);
    list_ = list(inline_[0]);
  } else if constexpr (std::convertible_to<B, list>) {
    list_ = std::forward<B>(buffer);
  } else if constexpr (temporary && std::same_as<bare, std::vector<View>>) {
    own(std::move(buffer));
  } else if constexpr (temporary && std::same_as<bare, basic_view_batch<View>>) {
    own(std::move(buffer).take());
  } else {
    copy(std::forward<B>(buffer));
  }
}

template <class View>
template <class R>
void basic_gather_list<View>::copy(R&& views) {
  std::size_t size = 0;
  if constexpr (std::ranges::sized_range<R>) {
    const auto known = static_cast<std::size_t>(std::ranges::size(views));
    if (known > inline_views) owned_.reserve(known);
  }
  for (auto&& each : views) {
    const View view = std::forward<decltype(each)>(each);
    if (size < inline_views) {
      inline_[size] = view;
    } else {
      if (owned_.empty()) owned_.assign(inline_.begin(), inline_.end());
      owned_.push_back(view);
    }
    ++size;
  }
  list_ = list{owned_.empty() ? inline_.data() : owned_.data(), size};
}

}  // namespace detail

/// Views of one element type each, one after the other in memory.
using device_view_list = detail::basic_view_list<device_view>;
using const_device_view_list = detail::basic_view_list<const_device_view>;

/// The argument of a send from a device: a `gather_list` of device views.
using device_gather_list = detail::basic_gather_list<const_device_view>;

/// The argument of a receive on a device: a `scatter_list` of device views.
using device_scatter_list = detail::basic_gather_list<device_view>;

/// A list that owns its views. A function that chooses blocks returns it.
using device_view_batch = detail::basic_view_batch<device_view>;
using const_device_view_batch = detail::basic_view_batch<const_device_view>;

}  // namespace manyworlds::inline v0
