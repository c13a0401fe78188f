/// Element types: those of messages and collectives, which are NCCL's.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/memory/small_float.hpp"

namespace manyworlds::inline v0 {

/// An element type. The values are those of ncclDataType_t and travel on the wire: never
/// renumber them.
enum class dtype : std::uint8_t {
  int8 = 0,
  uint8 = 1,
  int32 = 2,
  uint32 = 3,
  int64 = 4,
  uint64 = 5,
  float16 = 6,
  float32 = 7,
  float64 = 8,
  bfloat16 = 9,
  float8_e4m3 = 10,
  float8_e5m2 = 11,
};

/// How many element types there are: their values are 0 to 11.
inline constexpr std::size_t dtype_count = 12;

/// Returns the bytes of one element. Precondition: `type` is one of the enumerators; a
/// number from elsewhere is checked before it becomes a dtype.
constexpr std::size_t size_of(dtype type) noexcept;

/// Returns the enumerator's name: `float32` ... Precondition: that of `size_of`.
constexpr std::string_view name_of(dtype type) noexcept;

/// Returns the type of that name, if there is one. PyTorch's `float8_e4m3fn` is
/// `float8_e4m3`.
constexpr std::optional<dtype> parse_dtype(std::string_view name) noexcept;

namespace detail {

/// Converts a number from a wire or from shared memory, if it is an element type.
constexpr std::optional<dtype> dtype_from_wire(std::uint8_t value) noexcept;

}  // namespace detail

/// The element type of a C++ type: `dtype_of<float>::value`, for short
/// `dtype_of_v<float>`.
///
/// Integers map by size and sign, plain `char` is int8 as in NCCL, `std::byte` is uint8.
/// These are no elements: bool (peers do not agree on its size), 16-bit integers (NCCL
/// has none), character types other than char, structs (send those as `object(x)`).
///
/// Specialise it for your own storage types, such as CUDA's `__half`:
/// `template <> struct mw::dtype_of<__half> : mw::is_dtype<mw::dtype::float16> {};`
template <class T>
struct dtype_of {};

/// The base of specialisations of `dtype_of`.
template <dtype Type>
using is_dtype = std::integral_constant<dtype, Type>;

/// The element type of a C++ type.
template <class T>
inline constexpr dtype dtype_of_v = dtype_of<std::remove_cv_t<T>>::value;

/// A C++ type that has an element type.
template <class T>
concept element = requires {
  { dtype_of<std::remove_cv_t<T>>::value } -> std::convertible_to<dtype>;
}

&&std::is_trivially_copyable_v<T> && sizeof(T) == size_of(dtype_of_v<T>);

// ---------------------------------------------------------------------------------------

namespace detail {

struct dtype_row {
  std::string_view name;
  std::size_t size;
};

inline constexpr std::array<dtype_row, dtype_count> dtype_table{{
    {"int8", 1},
    {"uint8", 1},
    {"int32", 4},
    {"uint32", 4},
    {"int64", 8},
    {"uint64", 8},
    {"float16", 2},
    {"float32", 4},
    {"float64", 8},
    {"bfloat16", 2},
    {"float8_e4m3", 1},
    {"float8_e5m2", 1},
}};

static_assert(
    [] {
      for (const dtype_row& row : dtype_table) {
        if (!std::has_single_bit(row.size)) return false;
      }
      return true;
    }(),
    "element sizes are powers of two, so that counting needs no division");

template <class T>
concept number_element =
    std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, wchar_t> &&
    !std::same_as<T, char8_t> && !std::same_as<T, char16_t> &&
    !std::same_as<T, char32_t> && (sizeof(T) == 1 || sizeof(T) == 4 || sizeof(T) == 8);

template <class T>
consteval dtype integer_dtype() noexcept {
  constexpr bool is_signed = std::is_signed_v<T> || std::same_as<T, char>;
  if (sizeof(T) == 1) return is_signed ? dtype::int8 : dtype::uint8;
  if (sizeof(T) == 4) return is_signed ? dtype::int32 : dtype::uint32;
  return is_signed ? dtype::int64 : dtype::uint64;
}

}  // namespace detail

constexpr std::size_t size_of(dtype type) noexcept {
  MW_ASSERT(static_cast<std::size_t>(type) < dtype_count, "a type was checked before");
  return detail::dtype_table[static_cast<std::size_t>(type)].size;
}

constexpr std::string_view name_of(dtype type) noexcept {
  MW_ASSERT(static_cast<std::size_t>(type) < dtype_count, "a type was checked before");
  return detail::dtype_table[static_cast<std::size_t>(type)].name;
}

namespace detail {

/// Returns how many elements have that many bytes.
[[nodiscard]] constexpr std::size_t count_of(std::size_t bytes, dtype type) noexcept {
  return bytes >> std::countr_zero(size_of(type));
}

constexpr std::optional<dtype> dtype_from_wire(std::uint8_t value) noexcept {
  if (value >= dtype_count) return std::nullopt;
  return static_cast<dtype>(value);
}

}  // namespace detail

constexpr std::optional<dtype> parse_dtype(std::string_view name) noexcept {
  if (name == "float8_e4m3fn") return dtype::float8_e4m3;
  for (std::uint8_t value = 0; value < dtype_count; ++value) {
    if (detail::dtype_table[value].name == name) return static_cast<dtype>(value);
  }
  return std::nullopt;
}

template <detail::number_element T>
struct dtype_of<T> : is_dtype<detail::integer_dtype<T>()> {};

template <>
struct dtype_of<std::byte> : is_dtype<dtype::uint8> {};

template <>
struct dtype_of<float> : is_dtype<dtype::float32> {};

template <>
struct dtype_of<double> : is_dtype<dtype::float64> {};

template <>
struct dtype_of<f16> : is_dtype<dtype::float16> {};

template <>
struct dtype_of<bf16> : is_dtype<dtype::bfloat16> {};

template <>
struct dtype_of<f8_e4m3> : is_dtype<dtype::float8_e4m3> {};

template <>
struct dtype_of<f8_e5m2> : is_dtype<dtype::float8_e5m2> {};

}  // namespace manyworlds::inline v0
