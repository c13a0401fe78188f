/// Buffer refusal: compiler errors that say why an argument is no buffer.
#pragma once

#include <concepts>
#include <ranges>
#include <type_traits>

#include "manyworlds/address.hpp"
#include "manyworlds/detail/call_refusal.hpp"
#include "manyworlds/memory/gather_list.hpp"
#include "manyworlds/memory/reduction.hpp"
#include "manyworlds/memory/tensor.hpp"

namespace manyworlds::inline v0::detail {

/// A tensor that has a name. Overloads of its own take it.
template <class B>
concept named_tensor =
    std::is_lvalue_reference_v<B> && std::same_as<std::remove_cvref_t<B>, tensor>;

template <class B>
concept not_sendable = !std::convertible_to<B, gather_list> &&
                       !std::convertible_to<B, device_gather_list> && !named_tensor<B>;
template <class B>
concept not_receivable = !std::convertible_to<B, scatter_list> &&
                         !std::convertible_to<B, device_scatter_list> && !named_tensor<B>;
template <class B>
concept no_buffer = !std::convertible_to<B, const_buffer_view> &&
                    !std::convertible_to<B, const_device_view> && !named_tensor<B>;

/// What a collective cannot write to.
template <class B>
concept no_target =
    (std::ranges::range<B> ||
     std::is_pointer_v<std::remove_cvref_t<B>>)&&!std::convertible_to<B, buffer_view> &&
    !std::convertible_to<B, device_view>;

/// What a collective can write to.
template <class B>
concept is_target = std::convertible_to<B, buffer_view> ||
    std::convertible_to<B, device_view> ||
    (named_tensor<B> && !std::is_const_v<std::remove_reference_t<B>>);

/// What stands behind the first buffer where no reduction does: a second buffer, or a
/// root or rank.
template <class First, class Second = void, class...>
inline constexpr bool is_after_buffer =
    is_target<Second> ||
    (is_target<First> && (std::convertible_to<Second, root> || no_rank_name<Second>));
template <class First>
inline constexpr bool is_after_buffer<First, void> = true;

/// The arguments of a reduction without its kind, and else right so far.
template <class First, class... Rest>
concept lacks_reduction =
    !no_buffer<First> && !(std::convertible_to<Rest, reduction> || ...) &&
    is_after_buffer<First, Rest...>;

template <class B>
concept owns_elements =
    (std::ranges::range<B> ||
     std::same_as<std::remove_cvref_t<B>, tensor>)&&!std::is_lvalue_reference_v<B> &&
    !std::ranges::borrowed_range<B>;
template <class B>
concept is_const_range = std::ranges::range<B> &&
    std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<B>>>;

/// Refuses an argument. Called by overloads that take what the others do not.
template <class B, bool IsReceived>
constexpr void refuse_buffer() noexcept {
  constexpr bool literal = character_literal<B>;
  constexpr bool dying = !literal && owns_elements<B>;
  constexpr bool constant = !literal && !dying && IsReceived && is_const_range<B>;
  constexpr bool pointer = std::is_pointer_v<std::remove_cvref_t<B>>;
  static_assert(!literal,
                "a literal would be sent with its terminating zero: give "
                "std::string_view(\"...\")");
  static_assert(!dying,
                "a temporary container would be gone before the await ends: give it a "
                "name in a statement before, and pass the name");
  static_assert(!constant, "what is received into must not be const");
  static_assert(!pointer, "a pointer does not say how many: give std::span(p, count)");
  static_assert(
      literal || dying || constant || pointer,
      "this is no contiguous range of elements with a dtype: trivially copyable "
      "structs go as bytes, std::as_bytes(std::span(x)) and "
      "std::as_writable_bytes(std::span(x)), one object as mw::object(x), and "
      "containers of containers as a list of views");
}

}  // namespace manyworlds::inline v0::detail
