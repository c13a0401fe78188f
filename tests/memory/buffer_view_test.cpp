#include "manyworlds/memory/buffer_view.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace mw = manyworlds;

namespace {

template <class From>
constexpr bool reads = std::is_convertible_v<From, mw::const_buffer_view>;
template <class From>
constexpr bool writes = std::is_convertible_v<From, mw::buffer_view>;

struct head {
  std::uint32_t step;
  std::uint32_t tokens;
};

template <class T>
concept has_object = requires(T value) {
  mw::object(std::forward<T>(value));
};

}  // namespace

TEST_SUITE_BEGIN("buffer_view");

static_assert(std::is_trivially_copyable_v<mw::const_buffer_view>);
static_assert(std::is_trivially_destructible_v<mw::buffer_view>);

static_assert(writes<std::vector<float>&> && writes<std::array<int, 3>&> &&
              writes<double (&)[4]>);
static_assert(writes<std::span<float>> && writes<std::string&>);
static_assert(reads<const std::vector<float>&> && reads<std::span<const float>>);
static_assert(reads<std::string_view> && reads<const int (&)[2]>);
static_assert(reads<mw::buffer_view> && !writes<mw::const_buffer_view>);

// Read-only memory cannot be received into.
static_assert(!writes<const std::vector<float>&> && !writes<std::span<const float>>);
static_assert(!writes<std::string_view> && !writes<const int (&)[2]>);

// Temporaries would dangle before the await ends.
static_assert(!reads<std::vector<float>> && !writes<std::vector<float>>);
static_assert(!reads<std::array<int, 3>> && !reads<std::string> &&
              !reads<const std::vector<float>>);
static_assert(!reads<std::initializer_list<float>>);

// What is no element, and a literal with its terminating zero.
static_assert(!reads<std::vector<bool>&> && !reads<std::vector<head>&> &&
              !reads<const char (&)[6]>);
static_assert(writes<char (&)[6]>);

static_assert(has_object<head&> && has_object<const head&> && !has_object<head>);
static_assert(!has_object<head*&> && !has_object<std::span<int>&> &&
              !has_object<mw::buffer_view&>);
static_assert(!has_object<std::string&> && has_object<std::array<int, 2>&>);

TEST_CASE("a view says where, how many and of what type") {
  std::vector<float> x(7);
  const mw::buffer_view view{x};
  CHECK(view.data() == x.data());
  CHECK(view.count() == 7);
  CHECK(view.type() == mw::dtype::float32);
  CHECK(view.size_bytes() == 28);

  const std::array<std::int64_t, 3> y{};
  const mw::const_buffer_view other = y;
  CHECK(other.type() == mw::dtype::int64);
  CHECK(other.size_bytes() == 24);
  CHECK(mw::const_buffer_view{std::string_view{"abc"}}.count() == 3);
  CHECK(mw::const_buffer_view{view}.data() == x.data());
}

TEST_CASE("the default view and an empty container are messages of no bytes") {
  std::vector<int> none;
  CHECK(mw::buffer_view{}.empty());
  CHECK(mw::buffer_view{none}.size_bytes() == 0);
  CHECK(mw::buffer_view{nullptr, 0, mw::dtype::float64}.empty());
}

TEST_CASE("a slice counts elements and stays inside") {
  std::vector<double> x(10);
  const mw::buffer_view view{x};
  const auto part = view.slice(4, 3);
  CHECK(part.data() == x.data() + 4);
  CHECK(part.count() == 3);
  CHECK(view.slice(10, 0).empty());
  CHECK(mw::const_buffer_view{view}.slice(9, 1).data() == x.data() + 9);
  CHECK_THROWS_AS(view.slice(4, 7), std::out_of_range);
  CHECK_THROWS_AS(view.slice(11, 0), std::out_of_range);
  CHECK_THROWS_AS(view.slice(2, std::numeric_limits<std::size_t>::max()),
                  std::out_of_range);
}

TEST_CASE("the bytes of a view are the same memory") {
  int x[5]{};
  const auto bytes = mw::buffer_view{x}.as_bytes();
  CHECK(bytes.data() == x);
  CHECK(bytes.count() == 20);
  CHECK(bytes.type() == mw::dtype::uint8);
  static_assert(std::is_same_v<decltype(bytes), const mw::buffer_view>);
}

TEST_CASE("a pointer that cannot be that many elements is refused by name") {
  int x = 0;
  CHECK_THROWS_WITH_AS(mw::buffer_view(nullptr, 3, mw::dtype::float16),
                       "buffer view: null pointer with 3 elements of float16",
                       std::invalid_argument);
  CHECK_THROWS_AS(
      mw::buffer_view(&x, std::numeric_limits<std::size_t>::max() / 4, mw::dtype::int64),
      std::invalid_argument);
  CHECK_THROWS_WITH_AS(mw::buffer_view(&x, 1, static_cast<mw::dtype>(99)),
                       "buffer view: 99 is no element type", std::invalid_argument);
}

TEST_CASE("an object is the bytes it consists of") {
  head h{1, 2};
  const mw::buffer_view view = mw::object(h);
  CHECK(view.data() == &h);
  CHECK(view.size_bytes() == sizeof(head));
  CHECK(view.type() == mw::dtype::uint8);
  static_assert(
      std::is_same_v<decltype(mw::object(std::as_const(h))), mw::const_buffer_view>);
}

TEST_SUITE_END();
