#include "memory/view_cursor.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <vector>

namespace mw = manyworlds;

namespace {

// Pieces scattered over one block in a shuffled order, some of no bytes; `order` is every
// byte's address in the order a message has them.
struct scattered {
  explicit scattered(std::mt19937& random) {
    std::vector<std::size_t> lengths(random() % 12);
    for (auto& each : lengths) each = random() % 3 == 0 ? 0 : random() % 9;
    memory.resize(std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}));
    std::size_t at = 0;
    for (const auto each : lengths) {
      views.push_back(std::span{memory}.subspan(at, each));
      at += each;
    }
    std::shuffle(views.begin(), views.end(), random);
    for (const auto& view : views) {
      auto* const start = static_cast<std::byte*>(view.data());
      for (std::size_t i = 0; i < view.count(); ++i) order.push_back(start + i);
    }
  }

  std::vector<std::byte> memory;
  std::vector<mw::buffer_view> views;
  std::vector<std::byte*> order;
};

std::vector<std::byte*> addresses(std::span<const iovec> entries) {
  std::vector<std::byte*> all;
  for (const auto& entry : entries) {
    REQUIRE(entry.iov_len != 0);
    for (std::size_t i = 0; i < entry.iov_len; ++i) {
      all.push_back(static_cast<std::byte*>(entry.iov_base) + i);
    }
  }
  return all;
}

}  // namespace

TEST_SUITE_BEGIN("view_cursor");

TEST_CASE("however it is cut, a list is read whole and in order") {
  std::mt19937 random{7};
  for (int round = 0; round < 3000; ++round) {
    const scattered data{random};
    mw::view_cursor cursor{mw::view_list{data.views}};
    mw::const_view_cursor reading{mw::const_view_list{data.views}};
    std::size_t done = 0;
    while (!cursor.at_end()) {
      REQUIRE(cursor.remaining() == data.order.size() - done);
      std::array<iovec, 5> room;
      const auto entries = std::span{room}.first(1 + random() % room.size());
      const auto limit = 1 + random() % 20;
      const auto used = cursor.fill(entries, limit);
      const auto seen = addresses(entries.first(used));
      REQUIRE(seen.size() > 0);
      REQUIRE(seen.size() <= limit);
      REQUIRE(std::equal(seen.begin(), seen.end(),
                         data.order.begin() + static_cast<std::ptrdiff_t>(done)));
      // Short of the limit only for want of entries or of bytes.
      const bool stopped = seen.size() == limit || used == entries.size();
      REQUIRE((stopped || seen.size() == cursor.remaining()));
      const auto piece = reading.front(limit);
      REQUIRE(piece.data() == data.order[done]);
      REQUIRE(piece.size() == std::min<std::size_t>(entries[0].iov_len, limit));
      const auto step = 1 + random() % seen.size();
      cursor.advance(step);
      reading.advance(step);
      done += step;
    }
    REQUIRE(done == data.order.size());
    std::array<iovec, 1> room;
    REQUIRE(cursor.fill(room, 100) == 0);
    REQUIRE(cursor.front(100).empty());
  }
}

TEST_CASE("bytes copied between lists of different layout arrive in message order") {
  std::mt19937 random{11};
  for (int round = 0; round < 1000; ++round) {
    const scattered from{random};
    const scattered to{random};
    for (std::size_t i = 0; i < from.order.size(); ++i) *from.order[i] = std::byte(i + 1);
    mw::const_view_cursor source{mw::const_view_list{from.views}};
    mw::view_cursor target{mw::view_list{to.views}};
    const auto whole = std::min(from.order.size(), to.order.size());
    std::size_t moved = 0;
    while (moved < whole) {
      const auto limit = 1 + random() % 7;
      const auto step = mw::copy_bytes(source, target, limit);
      REQUIRE(step == std::min(limit, whole - moved));
      moved += step;
    }
    REQUIRE(mw::copy_bytes(source, target, 100) == 0);
    REQUIRE(source.remaining() == from.order.size() - whole);
    for (std::size_t i = 0; i < to.order.size(); ++i) {
      REQUIRE(*to.order[i] == (i < whole ? std::byte(i + 1) : std::byte{0}));
    }
  }
}

TEST_CASE("nothing is described where there is no room or no wish") {
  std::array<int, 4> x{};
  const std::array<mw::buffer_view, 1> views{x};
  const mw::view_cursor cursor{mw::view_list{views}};
  std::array<iovec, 2> room;
  CHECK(cursor.fill(room, 0) == 0);
  CHECK(cursor.fill({}, 100) == 0);
  CHECK(cursor.remaining() == 16);
}

TEST_CASE("a list of only empty views is at its end") {
  const std::array<mw::buffer_view, 3> none{};
  CHECK(mw::view_cursor{mw::view_list{none}}.at_end());
  CHECK(mw::view_cursor{mw::view_list{}}.at_end());
  CHECK(mw::view_cursor{}.at_end());
}

TEST_CASE("a step beyond the end is refused and moves nothing") {
  std::array<int, 4> x{};
  const std::array<mw::buffer_view, 1> views{x};
  mw::view_cursor cursor{mw::view_list{views}};
  cursor.advance(10);
  CHECK_THROWS_AS(cursor.advance(7), std::out_of_range);
  CHECK(cursor.remaining() == 6);
}

TEST_SUITE_END();
