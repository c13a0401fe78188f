// Reduced by hand: what the library's kernels must give, one element at a time in plain
// C++, and the elements that are worth asking for.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "manyworlds/memory/dtype.hpp"
#include "manyworlds/memory/reduction.hpp"

namespace reduced_by_hand {

namespace mw = manyworlds;

template <class T>
constexpr bool is_integer = std::is_integral_v<T>;

template <class T>
T the_nan() {
  if constexpr (std::is_floating_point_v<T>) {
    return std::numeric_limits<T>::quiet_NaN();
  } else if constexpr (std::is_same_v<T, mw::f16>) {
    return T::from_bits(0x7E00);
  } else if constexpr (std::is_same_v<T, mw::bf16>) {
    return T::from_bits(0x7FC0);
  } else {
    return T::from_bits(std::is_same_v<T, mw::f8_e4m3> ? 0x7F : 0x7E);
  }
}

/// What the elements' arithmetic is done in.
template <class T>
using arithmetic = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T>
T stored(arithmetic<T> value) {
  return std::isnan(value) ? the_nan<T>() : T(value);
}

/// a < b, where -0 < +0.
template <class T>
bool below(T a, T b) {
  if constexpr (!is_integer<T>) {
    const auto x = static_cast<arithmetic<T>>(a), y = static_cast<arithmetic<T>>(b);
    return x < y || (x == y && std::signbit(x) && !std::signbit(y));
  } else {
    return a < b;
  }
}

template <class T>
T reduced(mw::reduction op, T a, T b) {
  if (op == mw::min || op == mw::max) {
    if constexpr (!is_integer<T>) {
      const auto x = static_cast<arithmetic<T>>(a), y = static_cast<arithmetic<T>>(b);
      if (std::isnan(x) || std::isnan(y)) return the_nan<T>();
    }
    return below(a, b) == (op == mw::min) ? a : b;
  }
  if constexpr (is_integer<T>) {
    const auto x = static_cast<std::uint64_t>(a), y = static_cast<std::uint64_t>(b);
    return static_cast<T>(op == mw::prod ? x * y : x + y);
  } else {
    const auto x = static_cast<arithmetic<T>>(a), y = static_cast<arithmetic<T>>(b);
    return stored<T>(op == mw::prod ? x * y : x + y);
  }
}

template <class T>
T divided(T a, std::int64_t divisor) {
  if constexpr (!is_integer<T>) {
    return stored<T>(static_cast<arithmetic<T>>(a) / static_cast<arithmetic<T>>(divisor));
  } else if constexpr (std::is_signed_v<T>) {
    return static_cast<T>(std::int64_t{a} / divisor);
  } else {
    return static_cast<T>(std::uint64_t{a} / static_cast<std::uint64_t>(divisor));
  }
}

template <class T>
using bits_of = std::conditional_t<
    sizeof(T) == 1, std::uint8_t,
    std::conditional_t<sizeof(T) == 2, std::uint16_t,
                       std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>>;

template <class T>
T from_pattern(std::uint64_t pattern) {
  return std::bit_cast<T>(static_cast<bits_of<T>>(pattern));
}

/// Zeros, ones, infinities, NaNs quiet and not, subnormals, the largest of each sign: all
/// that lies next to a power of two, of either sign, and next to all ones.
template <class T>
std::vector<T> special_values() {
  constexpr int digits = 8 * sizeof(T);
  std::vector<T> values;
  for (int bit = 0; bit < digits; ++bit) {
    const std::uint64_t power = std::uint64_t{1} << bit;
    const std::uint64_t sign = std::uint64_t{1} << (digits - 1);
    // From this bit up to the sign: among these are the infinities.
    const std::uint64_t upper = (sign - 1) & ~(power - 1);
    for (const std::uint64_t p : {power, upper}) {
      for (const std::uint64_t near : {p - 1, p, p + 1}) {
        values.push_back(from_pattern<T>(near));
        values.push_back(from_pattern<T>(near | sign));
      }
    }
  }
  return values;
}

template <class T>
std::vector<T> random_values(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto special = special_values<T>();
  std::vector<T> values(count);
  for (T& value : values) {
    const auto pattern = random();
    value = pattern % 4 == 0 ? special[(pattern >> 8) % special.size()]
                             : from_pattern<T>(pattern >> 8 << 4 | (pattern & 0xF));
  }
  return values;
}

}  // namespace reduced_by_hand
