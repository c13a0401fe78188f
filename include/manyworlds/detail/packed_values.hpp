// Packed values: the values of a call at a calls edge, or its result, as one text.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "manyworlds/spmd/remote_function.hpp"

namespace manyworlds::inline v0::detail {

/// Returns a copy of what was written, with what stands beside it.
[[nodiscard]] std::string pack(const value_writer& values);

/// Values that were packed. Lifetime: what is read refers to this; tensors share its
/// memory and may outlive it.
class unpacked_values {
 public:
  /// Copies them to where all elements are aligned. Errors: value_error for what `pack`
  /// does not make (law 11).
  explicit unpacked_values(std::string_view packed);

  [[nodiscard]] value_reader& reader() noexcept { return *reader_; }

 private:
  std::optional<value_reader> reader_;
  std::shared_ptr<void> kept_;
};

/// Errors: value_error if another number of arguments has come.
void check_argument_count(std::size_t wanted, std::size_t got);
/// Errors: value_error if values are left.
void check_end(const value_reader& in);
/// Throws world_error (`invalid_argument`) with the number of the argument that does not
/// fit, from 1 on, or for 0 without.
[[noreturn]] void refuse_argument(std::size_t number, std::string_view why);

/// Opens the arguments of a call. Errors: world_error (`invalid_argument`).
[[nodiscard]] unpacked_values unpacked_arguments(std::string_view packed);

/// An argument that was read. A tuple of these is none of the values themselves, some of
/// which are made of any tuple.
template <class P>
struct unpacked_argument {
  P value;
};

/// Reads the arguments of a call. Errors: world_error (`invalid_argument`) if they are
/// others.
template <class... P>
[[nodiscard]] std::tuple<unpacked_argument<P>...> read_arguments(unpacked_values& from) {
  std::size_t number = 0;
  try {
    value_reader& in = from.reader();
    check_argument_count(sizeof...(P), in.list());
    [[maybe_unused]] const auto next = [&]<class T>(std::type_identity<T>) {
      ++number;
      return unpacked_argument<T>{argument<T>::read(in)};
    };
    // Braces order the reads.
    std::tuple<unpacked_argument<P>...> all{next(std::type_identity<P>())...};
    number = 0;
    check_end(in);
    return all;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {
    // A type of the user's may throw anything.
    refuse_argument(number, e.what());
  }
}

template <class... P>
[[nodiscard]] std::string pack_arguments(const P&... given) {
  value_writer out;
  out.list(sizeof...(P));
  (argument<P>::write(out, given), ...);
  return pack(out);
}

/// The arguments of one call, packed.
template <class... P>
class call_values {
 public:
  /// Packs them; nothing refers to them afterwards. Errors: what `argument<P>::write`
  /// throws.
  call_values(const P&... given) : packed_(pack_arguments<P...>(given...)) {}

  /// Returns the only argument of a question.
  [[nodiscard]] std::vector<std::string> packed_alone() && {
    std::vector<std::string> all;
    all.push_back(std::move(packed_));
    return all;
  }

 private:
  std::string packed_;
};

/// What stands for one call among several: the argument itself, or a tuple of them.
template <class... P>
struct call_item {
  using type = std::tuple<P...>;
  static std::string pack(const type& item) {
    return std::apply([](const P&... each) { return pack_arguments<P...>(each...); },
                      item);
  }
};
template <class P>
struct call_item<P> {
  using type = P;
  static std::string pack(const P& item) { return pack_arguments<P>(item); }
};

template <class... P>
[[nodiscard]] std::vector<std::string> packed_items(
    const std::vector<typename call_item<P...>::type>& items) {
  std::vector<std::string> all;
  all.reserve(items.size());
  for (const auto& each : items) all.push_back(call_item<P...>::pack(each));
  return all;
}

template <class T>
inline constexpr bool refers_to_call = std::same_as<T, std::string_view>;
template <class T, std::size_t Size>
inline constexpr bool refers_to_call<std::span<T, Size>> = true;
template <class T>
inline constexpr bool refers_to_call<std::optional<T>> = refers_to_call<T>;
template <class T>
inline constexpr bool refers_to_call<std::vector<T>> = refers_to_call<T>;
template <class T, std::size_t Size>
inline constexpr bool refers_to_call<std::array<T, Size>> = refers_to_call<T>;
template <class A, class B>
inline constexpr bool refers_to_call<std::pair<A, B>> =
    refers_to_call<A> || refers_to_call<B>;
template <class... T>
inline constexpr bool refers_to_call<std::tuple<T...>> = (refers_to_call<T> || ...);

/// Holds for types of calls that carry values alone, with a result that lasts.
template <class Result, class... P>
concept called_by_values = (value_parameter<P> && ...) &&
                           (std::is_void_v<Result> ||
                            (remote_value<Result> && !refers_to_call<Result>));

/// Stands for a result where a type of values is needed.
template <class Result>
using kept_result = std::conditional_t<std::is_void_v<Result>, std::monostate, Result>;

/// Returns the result of one call. Errors: value_error if it is another value.
template <class Result>
[[nodiscard]] kept_result<Result> read_result(std::string_view packed) {
  unpacked_values from(packed);
  value_reader& in = from.reader();
  if constexpr (std::is_void_v<Result>) {
    in.none();
    check_end(in);
    return {};
  } else {
    Result value = argument<Result>::read(in);
    check_end(in);
    return value;
  }
}

template <class Result>
[[nodiscard]] std::string packed_result(const Result& value) {
  value_writer out;
  argument<Result>::write(out, value);
  return pack(out);
}
[[nodiscard]] inline std::string packed_nothing() {
  value_writer out;
  out.none();
  return pack(out);
}

}  // namespace manyworlds::inline v0::detail
