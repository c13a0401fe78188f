/// Buffer views: the host memory of sends and receives, with its count and element type.
#pragma once

#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <ranges>
#include <type_traits>

#include "manyworlds/memory/dtype.hpp"

namespace manyworlds::inline v0 {

class const_buffer_view;

namespace detail {

template <class View>
class basic_gather_list;

template <class R>
concept element_range = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
    element<std::ranges::range_value_t<R>>;

template <class T>
inline constexpr bool is_literal = false;
template <std::size_t Size>
inline constexpr bool is_literal<const char[Size]> = true;

template <class R>
concept character_literal = is_literal<std::remove_reference_t<R>>;

template <class R>
concept lasting_elements =
    element_range<R> && std::ranges::borrowed_range<R> && !character_literal<R>;

template <class R>
concept lasting_writable_elements = lasting_elements<R> &&
    !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;

template <class R>
concept dying_elements = element_range<R> && !std::ranges::borrowed_range<R>;

/// Throws std::invalid_argument, which says what is wrong with such a view. Returns if
/// nothing is.
void refuse_view(const void* data, std::size_t count, dtype type);

/// Throws std::invalid_argument unless `data` can be `count` elements of `type`. It is
/// inline, and no division, for all views that are not absurdly large: 5 ns a message.
inline void check_view(const void* data, std::size_t count, dtype type) {
  constexpr std::size_t surely_in_memory = std::size_t{1} << 56;
  const bool is_plain = static_cast<std::size_t>(type) < dtype_count &&
                        count < surely_in_memory && (data != nullptr || count == 0);
  if (!is_plain) [[unlikely]]
    refuse_view(data, count, type);
}

/// Throws std::out_of_range unless [offset, offset + count) lies within `size`.
void check_slice(std::size_t offset, std::size_t count, std::size_t size);

template <class T>
concept plain_object =
    std::is_object_v<T> && std::is_trivially_copyable_v<T> && !std::is_pointer_v<T> &&
    !std::is_member_pointer_v<T> && !std::ranges::view<T> &&
    !std::derived_from<T, const_buffer_view>;

}  // namespace detail

/// Elements in host memory that may be read. A send takes it.
///
///     co_await w.send(x, mw::to{1});  // a whole container
///     co_await w.send(mw::const_buffer_view(x).slice(0, 16), mw::to{1});
///     co_await w.send(mw::const_buffer_view(p, 16, mw::dtype::float32), mw::to{1});
///     co_await w.send({mw::object(head), x}, mw::to{1});  // several, as one message
///
/// Lifetime: it owns nothing; the memory must live, and stay unchanged, until the await
/// on the operation ends. It is made implicitly from lvalues of contiguous containers and
/// arrays, and from spans. No constructor takes a temporary container, which would be
/// gone before the await ends.
class const_buffer_view {
 public:
  /// Makes a view without elements: a message of zero bytes.
  constexpr const_buffer_view() noexcept = default;

  /// Makes a view of `count` elements at `data`. Errors: std::invalid_argument for a null
  /// pointer with elements, for an invalid type, and for more bytes than an address space
  /// has.
  const_buffer_view(const void* data, std::size_t count, dtype type)
      : data_{data}, count_{count}, type_{type} {
    detail::check_view(data, count, type);
  }

  /// Makes a view of a container, an array or a span that outlives the expression.
  template <detail::lasting_elements R>
  constexpr const_buffer_view(R&& range) noexcept
      : data_{std::ranges::data(range)},
        count_{static_cast<std::size_t>(std::ranges::size(range))},
        type_{dtype_of_v<std::ranges::range_value_t<R>>} {}

  // Compilers print the line, and the reason with it.
  template <detail::dying_elements R>
  const_buffer_view(R&&) = delete;  // a temporary is gone before the await ends: name it
  template <element T>
  const_buffer_view(std::initializer_list<T>) = delete;  // a temporary: give it a name
  template <detail::character_literal R>
  const_buffer_view(R&&) = delete;  // its zero would be sent: say std::string_view("...")

  constexpr const void* data() const noexcept { return data_; }
  /// Counts elements, not bytes.
  constexpr std::size_t count() const noexcept { return count_; }
  constexpr dtype type() const noexcept { return type_; }
  constexpr std::size_t size_bytes() const noexcept { return count_ * size_of(type_); }
  constexpr bool empty() const noexcept { return count_ == 0; }

  /// Returns `count` elements from `offset` on. Errors: std::out_of_range beyond the end.
  const_buffer_view slice(std::size_t offset, std::size_t count) const {
    detail::check_slice(offset, count, count_);
    return {trusted{}, static_cast<const std::byte*>(data_) + offset * size_of(type_),
            count, type_};
  }

  constexpr const_buffer_view as_bytes() const noexcept {
    return {trusted{}, data_, size_bytes(), dtype::uint8};
  }

 protected:
  template <class View>
  friend class detail::basic_gather_list;

  /// Copies a view that was made just now. The compiler's copy, in blocks of 16 bytes,
  /// could not be forwarded from the narrower stores (a store-forwarding stall: 5 ns each
  /// time, of a message that takes 200).
  constexpr const_buffer_view by_member() const noexcept {
    return {trusted{}, data_, count_, type_};
  }

  struct trusted {};
  constexpr const_buffer_view(trusted, const void* data, std::size_t count,
                              dtype type) noexcept
      : data_{data}, count_{count}, type_{type} {}

 private:
  const void* data_ = nullptr;
  std::size_t count_ = 0;
  dtype type_ = dtype::uint8;
};

/// Elements in host memory that may be written. A receive or a collective takes it.
///
///     co_await w.recv(x, mw::from{1});  // a whole container
///     co_await w.recv(mw::buffer_view(x).slice(0, 16), mw::from{1});
///     co_await w.recv({mw::object(head), x}, mw::from{1});  // one message, to several
///
/// Lifetime: the caller touches the memory again only when the await has ended. It is
/// also a `const_buffer_view`, and adds no member: the same code reads lists of either.
class buffer_view : public const_buffer_view {
 public:
  constexpr buffer_view() noexcept = default;

  /// Makes a view of `count` elements at `data`. Errors: those of `const_buffer_view`.
  buffer_view(void* data, std::size_t count, dtype type)
      : const_buffer_view{data, count, type} {}

  /// Makes a view of a container, an array or a span that outlives the expression.
  template <detail::lasting_writable_elements R>
  constexpr buffer_view(R&& range) noexcept
      : const_buffer_view{trusted{}, std::ranges::data(range),
                          static_cast<std::size_t>(std::ranges::size(range)),
                          dtype_of_v<std::ranges::range_value_t<R>>} {}

  template <detail::dying_elements R>
  buffer_view(R&&) = delete;  // a temporary is gone before it can be read: name it
  template <element T>
  buffer_view(std::initializer_list<T>) = delete;  // a temporary: give it a name

  /// Returns the memory as writable. Only our own base has made it const: every
  /// constructor takes writable memory.
  constexpr void* data() const noexcept {
    return const_cast<void*>(const_buffer_view::data());
  }

  /// Works as `const_buffer_view::slice`. Errors: std::out_of_range beyond the end.
  buffer_view slice(std::size_t offset, std::size_t count) const {
    return {trusted{}, const_buffer_view::slice(offset, count)};
  }

  constexpr buffer_view as_bytes() const noexcept {
    return {trusted{}, const_buffer_view::as_bytes()};
  }

 private:
  template <class View>
  friend class detail::basic_gather_list;

  constexpr buffer_view(trusted, const const_buffer_view& writable) noexcept
      : const_buffer_view{writable} {}
  constexpr buffer_view by_member() const noexcept {
    return {trusted{}, const_buffer_view::by_member()};
  }
};

static_assert(sizeof(buffer_view) == sizeof(const_buffer_view));

static_assert(std::is_standard_layout_v<buffer_view>);

static_assert(std::is_trivially_copyable_v<buffer_view>);

/// Returns the bytes of one trivially copyable object, for a head or a small struct. Both
/// peers must agree on its layout. It refuses pointers, spans and views: their address
/// means nothing elsewhere.
template <class T>
requires detail::plain_object<T> &&(!std::is_const_v<T>)buffer_view object(T& value) {
  return {std::addressof(value), sizeof(T), dtype::uint8};
}

/// Does the same with an object that is only sent.
template <detail::plain_object T>
const_buffer_view object(const T& value) {
  return {std::addressof(value), sizeof(T), dtype::uint8};
}

// A temporary would dangle before the await ends: give it a name.
template <detail::plain_object T>
const_buffer_view object(const T&&) = delete;

}  // namespace manyworlds::inline v0
