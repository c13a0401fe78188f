/// Small floats: floating-point element types that are narrower than float, for storage.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0 {

namespace detail {

/// The result of a conversion of a magnitude above the largest finite one.
enum class overflow { infinity, largest_finite };

struct f16_format {
  using storage = std::uint16_t;
  static constexpr int mantissa_bits = 10;
  static constexpr int bias = 15;
  static constexpr storage largest_finite = 0x7BFF;
  static constexpr storage first_nan = 0x7C01;
  static constexpr storage quiet_nan = 0x7E00;
  static constexpr auto on_overflow = overflow::infinity;
};

struct bf16_format {
  using storage = std::uint16_t;
  static constexpr int mantissa_bits = 7;
  static constexpr int bias = 127;
  static constexpr storage largest_finite = 0x7F7F;
  static constexpr storage first_nan = 0x7F81;
  static constexpr storage quiet_nan = 0x7FC0;
  static constexpr auto on_overflow = overflow::infinity;
};

struct f8_e4m3_format {
  using storage = std::uint8_t;
  static constexpr int mantissa_bits = 3;
  static constexpr int bias = 7;
  static constexpr storage largest_finite = 0x7E;
  static constexpr storage first_nan = 0x7F;
  static constexpr storage quiet_nan = 0x7F;
  static constexpr auto on_overflow = overflow::largest_finite;
};

struct f8_e5m2_format {
  using storage = std::uint8_t;
  static constexpr int mantissa_bits = 2;
  static constexpr int bias = 15;
  static constexpr storage largest_finite = 0x7B;
  static constexpr storage first_nan = 0x7D;
  static constexpr storage quiet_nan = 0x7E;
  static constexpr auto on_overflow = overflow::largest_finite;
};

template <class Format, std::floating_point From>
constexpr typename Format::storage narrow(From value) noexcept;

template <class Format>
constexpr float widen(typename Format::storage bits) noexcept;

}  // namespace detail

/// A number as it lies in memory: its bits and the conversions to and from float.
///
/// Reading is implicit, since every value is exactly a float; arithmetic therefore
/// happens in float. Writing is explicit and rounds once, to nearest even, from float or
/// double. NaN stays NaN and becomes quiet. A default-initialised one is indeterminate,
/// as a float is.
template <class Format>
class small_float {
 public:
  /// The unsigned integer that holds its bits.
  using storage = typename Format::storage;

  small_float() = default;

  /// Rounds to the nearest number, ties to even.
  template <std::floating_point From>
  requires(sizeof(From) <=
           sizeof(double)) explicit constexpr small_float(From value) noexcept
      : bits_{detail::narrow<Format>(value)} {}

  /// Makes the number of these bits.
  static constexpr small_float from_bits(storage bits) noexcept {
    small_float made{};
    made.bits_ = bits;
    return made;
  }

  constexpr storage bits() const noexcept { return bits_; }
  constexpr operator float() const noexcept { return detail::widen<Format>(bits_); }

 private:
  storage bits_;
};

/// IEEE 754 binary16. Above 65504 (after rounding): infinity.
using f16 = small_float<detail::f16_format>;

/// The upper half of a float. Above its largest finite value: infinity.
using bf16 = small_float<detail::bf16_format>;

/// OCP 8-bit floating point (OFP8 1.0) E4M3, elsewhere e4m3fn: no infinity, one NaN of
/// each sign. Conversion is OFP8's saturating mode, as in CUDA's and NCCL's arithmetic:
/// anything above 448, infinity included, becomes 448.
using f8_e4m3 = small_float<detail::f8_e4m3_format>;

/// OFP8 E5M2. Infinities can be stored, but conversion is the saturating mode here too:
/// anything above 57344, infinity included, becomes 57344.
using f8_e5m2 = small_float<detail::f8_e5m2_format>;

// ---------------------------------------------------------------------------------------

namespace detail {

template <std::unsigned_integral Word>
constexpr Word shift_right_to_nearest_even(Word value, int shift) noexcept {
  const auto below_half = static_cast<Word>((Word{1} << (shift - 1)) - 1);
  const auto odd = static_cast<Word>((value >> shift) & 1);
  return static_cast<Word>((value + below_half + odd) >> shift);
}

template <class Format, std::floating_point From>
constexpr typename Format::storage narrow(From value) noexcept {
  using storage = typename Format::storage;
  using word =
      std::conditional_t<sizeof(From) == sizeof(float), std::uint32_t, std::uint64_t>;
  constexpr int from_mantissa = std::numeric_limits<From>::digits - 1;
  constexpr int from_bias = std::numeric_limits<From>::max_exponent - 1;
  constexpr int dropped = from_mantissa - Format::mantissa_bits;
  constexpr int rebias = from_bias - Format::bias;
  constexpr word from_sign = word{1} << (std::numeric_limits<word>::digits - 1);
  constexpr word implicit_one = word{1} << from_mantissa;
  constexpr word from_infinity =
      std::bit_cast<word>(std::numeric_limits<From>::infinity());
  constexpr auto sign_bit =
      static_cast<storage>(1U << (std::numeric_limits<storage>::digits - 1));

  const auto pattern = std::bit_cast<word>(value);
  const auto magnitude = static_cast<word>(pattern & ~from_sign);
  const auto signed_as_value = [&](word bits) {
    return static_cast<storage>((pattern & from_sign) != 0 ? bits | sign_bit : bits);
  };

  if (magnitude > from_infinity) {
    const auto payload = static_cast<word>((magnitude & (implicit_one - 1)) >> dropped);
    return signed_as_value(static_cast<word>(Format::quiet_nan | payload));
  }

  word rounded;
  const auto exponent = static_cast<int>(magnitude >> from_mantissa);
  if (exponent > rebias) {
    // A carry out of the mantissa moves into the exponent: the next power of two, as
    // wanted.
    constexpr auto offset = static_cast<word>(static_cast<word>(rebias) << from_mantissa);
    rounded = shift_right_to_nearest_even(static_cast<word>(magnitude - offset), dropped);
  } else {
    const auto significand = static_cast<word>(
        exponent == 0 ? magnitude : (magnitude & (implicit_one - 1)) | implicit_one);
    const int shift = dropped + rebias + 1 - (exponent == 0 ? 1 : exponent);
    // Beyond this shift the value is under half of the smallest subnormal.
    rounded = shift > from_mantissa + 1 ? word{0}
                                        : shift_right_to_nearest_even(significand, shift);
  }

  if (rounded > Format::largest_finite) {
    constexpr bool infinite = Format::on_overflow == overflow::infinity;
    rounded = static_cast<word>(Format::largest_finite + (infinite ? 1 : 0));
  }
  return signed_as_value(rounded);
}

template <class Format>
constexpr float widen(typename Format::storage bits) noexcept {
  using storage = typename Format::storage;
  constexpr int digits = std::numeric_limits<storage>::digits;
  constexpr int to_mantissa = std::numeric_limits<float>::digits - 1;
  constexpr int to_bias = std::numeric_limits<float>::max_exponent - 1;
  constexpr int gained = to_mantissa - Format::mantissa_bits;
  constexpr std::uint32_t rebias = to_bias - Format::bias;
  constexpr std::uint32_t to_infinity = 0x7F800000U;

  const auto sign = (std::uint32_t{bits} >> (digits - 1)) << 31;
  const auto magnitude = std::uint32_t{bits} & ((1U << (digits - 1)) - 1);
  const auto as_float = [&](std::uint32_t pattern) {
    return std::bit_cast<float>(sign | pattern);
  };

  if constexpr (rebias == 0) {
    return as_float(magnitude << gained);
  } else {
    if (magnitude >= Format::first_nan) {
      const auto payload = (magnitude << gained) & ((1U << to_mantissa) - 1);
      return as_float(to_infinity | payload);
    }
    if (magnitude > Format::largest_finite) return as_float(to_infinity);
    if ((magnitude >> Format::mantissa_bits) == 0) {
      constexpr auto unit = std::bit_cast<float>(
          static_cast<std::uint32_t>(to_bias + 1 - Format::bias - Format::mantissa_bits)
          << to_mantissa);
      const auto value = static_cast<float>(magnitude) * unit;
      return as_float(std::bit_cast<std::uint32_t>(value));
    }
    return as_float((magnitude << gained) + (rebias << to_mantissa));
  }
}

}  // namespace detail

}  // namespace manyworlds::inline v0
