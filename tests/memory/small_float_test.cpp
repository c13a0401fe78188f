#include "manyworlds/memory/small_float.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <type_traits>

namespace mw = manyworlds;

namespace {

struct description {
  int mantissa_bits;
  int smallest_exponent;
  double largest;
  bool infinite;  // what lies above the largest becomes infinity, not the largest
};

template <class T>
description description_of();
template <>
description description_of<mw::f16>() {
  return {10, -14, 65504.0, true};
}
template <>
description description_of<mw::bf16>() {
  return {7, -126, std::ldexp(255.0, 120), true};
}
template <>
description description_of<mw::f8_e4m3>() {
  return {3, -6, 448.0, false};
}
template <>
description description_of<mw::f8_e5m2>() {
  return {2, -14, 57344.0, false};
}

// By arithmetic on values, where the library works on bits: the spacing of the format at
// this magnitude, and the processor's own rounding to a multiple of it.
template <class T>
double nearest(double value) {
  const auto format = description_of<T>();
  if (std::isnan(value) || value == 0) return value;
  const auto limit =
      format.infinite ? std::numeric_limits<double>::infinity() : format.largest;
  if (std::isinf(value)) return std::copysign(limit, value);
  const int exponent = std::max(std::ilogb(value), format.smallest_exponent);
  const double spacing = std::ldexp(1.0, exponent - format.mantissa_bits);
  const double rounded = std::nearbyint(value / spacing) * spacing;
  return std::abs(rounded) > format.largest ? std::copysign(limit, value) : rounded;
}

template <class T, class From>
void check_rounding(From value) {
  const double expected = nearest<T>(static_cast<double>(value));
  const double got = static_cast<float>(T{value});
  CAPTURE(value);
  if (std::isnan(expected)) {
    REQUIRE(std::isnan(got));
  } else {
    REQUIRE(std::bit_cast<std::uint64_t>(got) == std::bit_cast<std::uint64_t>(expected));
  }
}

template <class T>
constexpr unsigned patterns = 1U << std::numeric_limits<typename T::storage>::digits;

template <class T>
T at(unsigned bits) {
  return T::from_bits(static_cast<typename T::storage>(bits));
}

}  // namespace

TEST_SUITE_BEGIN("small_float");

static_assert(std::is_trivial_v<mw::f16> && sizeof(mw::f16) == 2 &&
              sizeof(mw::bf16) == 2);
static_assert(sizeof(mw::f8_e4m3) == 1 && sizeof(mw::f8_e5m2) == 1);
static_assert(mw::f16{1.0f}.bits() == 0x3C00 && float{mw::f16{-2.5}} == -2.5f);
static_assert(mw::bf16{1.0f}.bits() == 0x3F80 && mw::f8_e4m3{1.0f}.bits() == 0x38);
static_assert(!std::is_convertible_v<float, mw::f16> &&
              std::is_convertible_v<mw::f16, float>);

TEST_CASE_TEMPLATE("every pattern comes back from float and double as it was", T, mw::f16,
                   mw::bf16, mw::f8_e4m3, mw::f8_e5m2) {
  unsigned nans = 0;
  for (unsigned bits = 0; bits < patterns<T>; ++bits) {
    const T stored = at<T>(bits);
    const float value = stored;
    const bool infinite = std::isinf(value);
    if (std::isnan(value)) {
      ++nans;
      REQUIRE(std::isnan(static_cast<float>(T{value})));
      REQUIRE(std::signbit(static_cast<float>(T{value})) == std::signbit(value));
    } else if (!infinite || description_of<T>().infinite) {
      REQUIRE(T{value}.bits() == stored.bits());
      REQUIRE(T{static_cast<double>(value)}.bits() == stored.bits());
    }
  }
  const unsigned mantissas = 1U << description_of<T>().mantissa_bits;
  CHECK(nans == (std::is_same_v<T, mw::f8_e4m3> ? 2 : 2 * (mantissas - 1)));
}

TEST_CASE_TEMPLATE("finite patterns grow in steps of the format's spacing", T, mw::f16,
                   mw::bf16, mw::f8_e4m3, mw::f8_e5m2) {
  const auto format = description_of<T>();
  const double smallest =
      std::ldexp(1.0, format.smallest_exponent - format.mantissa_bits);
  double below = 0;
  unsigned bits = 1;
  for (; below < format.largest; ++bits) {
    const double value = static_cast<float>(at<T>(bits));
    const int exponent =
        std::max(std::ilogb(below == 0 ? smallest : below), format.smallest_exponent);
    REQUIRE(value - below == std::ldexp(1.0, exponent - format.mantissa_bits));
    below = value;
  }
  CHECK(below == format.largest);
  const float next = at<T>(bits);
  CHECK((std::is_same_v<T, mw::f8_e4m3> ? std::isnan(next) : std::isinf(next)));
}

TEST_CASE_TEMPLATE("values between two patterns round to nearest, ties to even", T,
                   mw::f16, mw::bf16, mw::f8_e4m3, mw::f8_e5m2) {
  for (unsigned bits = 0; bits + 1 < patterns<T> / 2; ++bits) {
    const double low = static_cast<float>(at<T>(bits));
    const double high = static_cast<float>(at<T>(bits + 1));
    if (!std::isfinite(low) || !std::isfinite(high)) continue;
    const double middle = (low + high) / 2;
    for (const double value :
         {middle, std::nextafter(middle, low), std::nextafter(middle, high)}) {
      check_rounding<T>(value);
      check_rounding<T>(-value);
      check_rounding<T>(static_cast<float>(value));
    }
    REQUIRE(T{middle}.bits() == ((bits % 2 == 0) ? bits : bits + 1));
  }
}

TEST_CASE_TEMPLATE("arbitrary floats and doubles round as plain arithmetic says", T,
                   mw::f16, mw::bf16, mw::f8_e4m3, mw::f8_e5m2) {
  std::mt19937_64 random{20260731};
  for (int i = 0; i < 200'000; ++i) {
    const auto bits = random();
    check_rounding<T>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    check_rounding<T>(std::bit_cast<double>(bits));
    // Most bit patterns are far outside small formats: look around their range as well.
    const int exponent = static_cast<int>(bits % 48) - 28;
    const auto mantissa = 1.0 + static_cast<double>(bits >> 12) * 0x1p-52;
    check_rounding<T>(std::ldexp(mantissa, exponent));
    check_rounding<T>(static_cast<float>(std::ldexp(-mantissa, exponent)));
  }
}

TEST_CASE("what is too large becomes infinity in 16 bits and the largest value in 8") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  CHECK(float{mw::f16{65519.0f}} == 65504.0f);
  CHECK(float{mw::f16{65520.0f}} == infinity);
  CHECK(float{mw::bf16{std::numeric_limits<float>::max()}} == infinity);
  CHECK(float{mw::f8_e4m3{464.0f}} == 448.0f);
  CHECK(float{mw::f8_e4m3{1e9f}} == 448.0f);
  CHECK(float{mw::f8_e4m3{-infinity}} == -448.0f);
  CHECK(float{mw::f8_e5m2{1e9f}} == 57344.0f);
  CHECK(float{mw::f8_e5m2{-infinity}} == -57344.0f);
  CHECK(float{mw::f8_e5m2::from_bits(0x7C)} == infinity);
}

TEST_CASE("a double rounds once, where going through float would round twice") {
  // Just above half of the way from 1 to the next f16: float drops the excess, then ties
  // to even.
  const double value = 1.0 + 0x1p-11 + 0x1p-40;
  CHECK(mw::f16{value}.bits() == 0x3C01);
  CHECK(mw::f16{static_cast<float>(value)}.bits() == 0x3C00);
}

TEST_CASE("comparison and arithmetic are those of float") {
  const mw::f16 half{0.5f};
  CHECK(half == mw::f16{0.5});
  CHECK(half + half == 1.0f);
  CHECK(mw::f16{-0.0f} == mw::f16{0.0f});
  const mw::bf16 nan{std::numeric_limits<float>::quiet_NaN()};
  CHECK(!(nan == nan));
}

TEST_SUITE_END();
