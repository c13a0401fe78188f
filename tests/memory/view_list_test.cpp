#include "manyworlds/detail/view_list.hpp"

#include <doctest/doctest.h>

#include <array>
#include <limits>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <vector>

namespace mw = manyworlds;

TEST_SUITE_BEGIN("view_list");

using views = std::vector<mw::buffer_view>;
static_assert(std::is_convertible_v<views&, mw::view_list>);
static_assert(std::is_convertible_v<views&, mw::const_view_list>);
static_assert(std::is_convertible_v<std::span<const mw::buffer_view>, mw::view_list>);
static_assert(!std::is_convertible_v<views, mw::view_list>);
static_assert(!std::is_convertible_v<std::vector<mw::const_buffer_view>&, mw::view_list>);
static_assert(std::is_trivially_copyable_v<mw::view_list>);

TEST_CASE("a list adds up its views, and those of no bytes count for nothing") {
  std::array<float, 4> a{};
  std::array<float, 2> b{};
  const views blocks{mw::buffer_view{}, a, mw::buffer_view{}, b};
  const mw::view_list list{blocks};
  CHECK(list.size() == 4);
  CHECK(list.total_bytes() == 24);
  CHECK(list.type() == mw::dtype::float32);
  CHECK(list.count() == 6);
  CHECK(list[3].data() == b.data());
  CHECK_THROWS_AS(list[4], std::out_of_range);
}

TEST_CASE("views of different types are a list of bytes") {
  std::array<float, 4> a{};
  std::array<int, 2> b{};
  const views blocks{a, b, a};
  const mw::view_list list{blocks};
  CHECK(list.type() == mw::dtype::uint8);
  CHECK(list.count() == 40);
}

TEST_CASE("writable views are read through a list for sends, in their order") {
  std::array<int, 3> memory{};
  views blocks;
  for (auto& each : memory) blocks.push_back(std::span{&each, 1});
  const mw::const_view_list list{blocks};
  for (std::size_t i = 0; i < memory.size(); ++i) CHECK(list[i].data() == &memory[i]);
}

TEST_CASE("a list of more bytes than a size holds is refused") {
  int x = 0;
  const auto half =
      static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / 2 + 1;
  const views blocks{mw::buffer_view{&x, half, mw::dtype::uint8},
                     mw::buffer_view{&x, half, mw::dtype::uint8}};
  CHECK_THROWS_AS(mw::view_list{blocks}, std::invalid_argument);
}

TEST_CASE("an empty list is a message of no bytes") {
  CHECK(mw::view_list{}.total_bytes() == 0);
  CHECK(mw::view_list{}.empty());
  CHECK_THROWS_AS(mw::view_list{}[0], std::out_of_range);
}

TEST_CASE("a batch owns its views and takes containers as they come") {
  std::vector<float> a(3), b(5);
  mw::view_batch batch{a, b};
  batch.push_back(std::span{a}.first(1));
  CHECK(batch.size() == 3);
  const mw::view_list list{batch};
  CHECK(list.count() == 9);
  const auto first = batch.data();
  const auto taken = std::move(batch).take();
  CHECK(taken.data() == first);
  static_assert(!std::is_aggregate_v<mw::view_batch>);
}

TEST_SUITE_END();
