// Requests that read a part: how long they are, and what is read together.
#include "weights/read_plan.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace mw = manyworlds;

namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;

std::vector<mw::planned_read> requests_of(const std::vector<mw::weight_range>& ranges) {
  mw::read_plan plan(ranges);
  std::vector<mw::planned_read> all;
  while (const std::optional<mw::planned_read> next = plan.next()) all.push_back(*next);
  return all;
}

/// The ranges of a column: `count` pieces, with a gap after each.
std::vector<mw::weight_range> columns(std::uint64_t count, std::uint64_t bytes,
                                      std::uint64_t gap) {
  std::vector<mw::weight_range> made;
  for (std::uint64_t i = 0; i < count; ++i)
    made.push_back({100 + i * (bytes + gap), bytes, i * bytes});
  return made;
}

}  // namespace

TEST_SUITE_BEGIN("weights");

TEST_CASE("what is contiguous is read where it belongs, by up to 1 MiB a request") {
  const std::vector<mw::weight_range> rows{{100, 2 * mib + 7, 50}};
  const auto all = requests_of(rows);
  REQUIRE(all.size() == 3);
  for (std::uint64_t i = 0; i < 3; ++i) {
    CHECK(all[i].pieces.empty());
    CHECK(all[i].offset == 100 + i * mib);
    CHECK(all[i].into == 50 + i * mib);
    CHECK(all[i].bytes == (i < 2 ? mib : 7));
  }
  CHECK(requests_of({}).empty());
  CHECK(requests_of({{8, mib, 0}}).size() == 1);
}

TEST_CASE("columns that lie near to each other are read together") {
  const auto near = columns(1000, 2048, 14 * 1024);
  const auto all = requests_of(near);
  std::size_t pieces = 0;
  for (const mw::planned_read& each : all) {
    CHECK(each.bytes <= mw::read_plan::most_bytes);
    REQUIRE(!each.pieces.empty());
    CHECK(each.offset == each.pieces.front().offset);
    CHECK(each.offset + each.bytes ==
          each.pieces.back().offset + each.pieces.back().bytes);
    CHECK(each.pieces.data() == near.data() + pieces);
    pieces += each.pieces.size();
  }
  CHECK(pieces == 1000);
  // 64 rows of 16 KiB are a MiB.
  CHECK(all.size() == 16);
}

TEST_CASE("columns that lie far from each other are read one by one, without a copy") {
  const auto far = columns(10, 4096, mw::read_plan::widest_gap + 1);
  const auto all = requests_of(far);
  REQUIRE(all.size() == 10);
  for (std::size_t i = 0; i < 10; ++i) {
    CHECK(all[i].pieces.empty());
    CHECK(all[i].offset == far[i].offset);
    CHECK(all[i].bytes == far[i].bytes);
    CHECK(all[i].into == far[i].into);
  }
}

TEST_CASE("a range that fills a request is not joined to its neighbours") {
  const std::vector<mw::weight_range> mixed{
      {0, 10, 0}, {20, mib, 10}, {20 + mib + 5, 10, 10 + mib}, {60 + mib, 4, 20 + mib}};
  const auto all = requests_of(mixed);
  REQUIRE(all.size() == 3);
  CHECK(all[0].pieces.empty());
  CHECK(all[0].bytes == 10);
  CHECK(all[1].pieces.empty());
  CHECK(all[1].bytes == mib);
  CHECK(all[2].pieces.size() == 2);
  CHECK(all[2].bytes == 60 + 4 - 25);
}

TEST_SUITE_END();
