#include "manyworlds/memory/dtype.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string_view>

namespace mw = manyworlds;

struct foreign_half {
  std::uint16_t bits;
};
struct plain_struct {
  int x;
};
template <>
struct mw::dtype_of<foreign_half> : mw::is_dtype<mw::dtype::float16> {};

TEST_SUITE_BEGIN("dtype");

static_assert(mw::dtype_of_v<float> == mw::dtype::float32);
static_assert(mw::dtype_of_v<const double> == mw::dtype::float64);
static_assert(mw::dtype_of_v<char> == mw::dtype::int8);
static_assert(mw::dtype_of_v<signed char> == mw::dtype::int8);
static_assert(mw::dtype_of_v<unsigned char> == mw::dtype::uint8);
static_assert(mw::dtype_of_v<std::byte> == mw::dtype::uint8);
static_assert(mw::dtype_of_v<int> == mw::dtype::int32);
static_assert(mw::dtype_of_v<long> == mw::dtype::int64);
static_assert(mw::dtype_of_v<long long> == mw::dtype::int64);
static_assert(mw::dtype_of_v<unsigned long long> == mw::dtype::uint64);
static_assert(mw::dtype_of_v<mw::f16> == mw::dtype::float16);
static_assert(mw::dtype_of_v<mw::bf16> == mw::dtype::bfloat16);
static_assert(mw::dtype_of_v<mw::f8_e4m3> == mw::dtype::float8_e4m3);
static_assert(mw::dtype_of_v<mw::f8_e5m2> == mw::dtype::float8_e5m2);
static_assert(mw::dtype_of_v<foreign_half> == mw::dtype::float16);

static_assert(mw::element<const float> && mw::element<foreign_half>);
static_assert(!mw::element<bool> && !mw::element<short> && !mw::element<wchar_t>);
static_assert(!mw::element<plain_struct> && !mw::element<float*> &&
              !mw::element<long double>);

TEST_CASE("every type has its own name, which parses back to it") {
  std::set<std::string_view> names;
  for (std::uint8_t value = 0; value < mw::dtype_count; ++value) {
    const auto type = static_cast<mw::dtype>(value);
    names.insert(mw::name_of(type));
    CHECK(mw::parse_dtype(mw::name_of(type)) == type);
    CHECK(mw::dtype_from_wire(value) == type);
  }
  CHECK(names.size() == mw::dtype_count);
  CHECK(mw::name_of(mw::dtype::bfloat16) == "bfloat16");
  CHECK(mw::parse_dtype("float8_e4m3fn") == mw::dtype::float8_e4m3);
}

TEST_CASE("sizes are those of the storage types") {
  CHECK(mw::size_of(mw::dtype::int8) == 1);
  CHECK(mw::size_of(mw::dtype::uint32) == sizeof(std::uint32_t));
  CHECK(mw::size_of(mw::dtype::int64) == sizeof(std::int64_t));
  CHECK(mw::size_of(mw::dtype::float16) == sizeof(mw::f16));
  CHECK(mw::size_of(mw::dtype::bfloat16) == sizeof(mw::bf16));
  CHECK(mw::size_of(mw::dtype::float64) == sizeof(double));
  CHECK(mw::size_of(mw::dtype::float8_e5m2) == sizeof(mw::f8_e5m2));
}

TEST_CASE("a name or number that is no element type gives none") {
  CHECK(!mw::parse_dtype(""));
  CHECK(!mw::parse_dtype("bool"));
  CHECK(!mw::parse_dtype("float3"));
  CHECK(!mw::dtype_from_wire(12));
  CHECK(!mw::dtype_from_wire(255));
}

TEST_SUITE_END();
