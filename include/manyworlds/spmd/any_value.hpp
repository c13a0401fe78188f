// Any value: a value of a remote function of which the program need not know the type.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "manyworlds/spmd/argument.hpp"

namespace manyworlds::inline v0 {

class any_value;

namespace detail {

/// A value as it travels, and the memory of what stands beside it.
struct kept_value;

/// Holds for literals and others that are texts, but are no argument by themselves.
template <class T>
concept text_source = !remote_value<T> && std::convertible_to<const T&, std::string_view>;

/// Holds for what an any_value is made of.
template <class T>
concept any_source = std::same_as<T, any_value> || text_source<T> || remote_value<T>;

/// Writes it as the value that an any_value made of it holds. What is large is referred
/// to where the caller has it.
template <class T>
void write_any(value_writer& out, const T& value) {
  if constexpr (std::same_as<T, any_value>) {
    out.any(value);
  } else if constexpr (remote_value<T>) {
    argument<T>::write(out, value);
  } else {
    out.text(value);
  }
}

[[noreturn]] void refuse_rest();

}  // namespace detail

/// Holds a value of any type that can travel (`argument`), or nothing. What it holds is
/// kept as it travels, so that it is converted as the arguments of a call are: an integer
/// to any type of integer that has it, a list to a vector or a tuple of its size.
///
///     mw::any_value given = 4;
///     given = mw::any_value::list("a", "b", std::vector<int>{1, 2});
///     std::string kinds;
///     for (const auto& each : given.as<std::vector<mw::any_value>>())
///       kinds += mw::describe(each.kind());  // given.kind() is that of a list
///
/// It never changes but by assignment, and copies share what they hold. Lists within
/// lists have 64 levels at most. Thread: any.
///
/// Errors: value_error, which says what is there and what is wanted; when it is made,
/// what `argument<T>::write` throws, and value_error if that does not write one value.
class any_value {
 public:
  /// How deep lists stand within lists.
  static constexpr std::size_t most_levels = 64;

  /// Holds nothing: what an empty optional is, and a function gives that gives nothing.
  any_value() noexcept = default;
  /// Holds a copy of a value, as `argument<T>` writes it, or of a text.
  template <class T>
  requires(!std::same_as<T, any_value> && detail::any_source<T>) any_value(const T& value)
      : any_value(kept_copy(value)) {}
  /// Takes over a tensor in host memory.
  any_value(tensor&& value);
  /// Makes a list of values, each as an any_value is made of it.
  template <detail::any_source... Parts>
  [[nodiscard]] static any_value list(const Parts&... parts) {
    value_writer out;
    out.list(sizeof...(Parts));
    (detail::write_any(out, parts), ...);
    return keep(out);
  }

  /// Returns what kind of value it holds; `none` for nothing.
  [[nodiscard]] value_kind kind() const { return reader().next(); }
  /// Returns the value as a T, read as the parameter of a function would be. Tensors
  /// share the memory of this and its copies. Lifetime: texts, bytes and elements that a
  /// T refers to live as long as this or a copy of it.
  template <remote_value T>
  [[nodiscard]] T as() const {
    value_reader in = reader();
    T value = argument<T>::read(in);
    if (!in.is_at_end()) detail::refuse_rest();
    return value;
  }

 private:
  friend struct detail::access;
  friend class value_reader;
  /// The longest value that is kept without an allocation: a number.
  static constexpr std::size_t small_bytes = 9;

  /// Keeps what was written, with a copy of what that refers to.
  [[nodiscard]] static any_value keep(const value_writer& written);
  [[nodiscard]] static any_value keep_one(value_reader in);
  template <class T>
  [[nodiscard]] static any_value kept_copy(const T& value) {
    value_writer out;
    detail::write_any(out, value);
    return keep(out);
  }
  [[nodiscard]] value_reader reader() const;
  /// What `detail::access::core` gives.
  [[nodiscard]] value_reader existing_core() const { return reader(); }

  /// Null if the value stands in `small_`.
  std::shared_ptr<const detail::kept_value> kept_;
  std::array<std::byte, small_bytes> small_{static_cast<std::byte>(value_kind::none)};
  std::uint8_t size_ = 1;
};

// A parameter or a result that may be any value. A parameter may also be given a dref:
// it is a copy of the value that the worker's register holds then.
template <>
struct argument<any_value> {
  static constexpr value_code code{"any"};
  /// Writes what an any_value made of it holds; large data is only referred to.
  template <detail::any_source T>
  static void write(value_writer& out, const T& value) {
    detail::write_any(out, value);
  }
  /// Reads a value of any kind.
  static any_value read(value_reader& in) { return in.any(); }
};

}  // namespace manyworlds::inline v0
