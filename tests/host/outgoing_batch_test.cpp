#include "host/outgoing_batch.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

using namespace manyworlds;
using namespace manyworlds::host;

namespace {

frame numbered(frame_kind kind) {
  frame f;
  f.kind = kind;
  f.id = 9;
  f.generation = 1;
  return f;
}

/// A slice of 50,000 bytes of 7, of which it is the last.
struct slice {
  slice()
      : memory(50'000, 7), view(memory), cursor(const_view_list(std::span(&view, 1))) {
    batch.open_with_slice(numbered(frame_kind::data), cursor, 1 << 20,
                          numbered(frame_kind::complete));
  }
  std::vector<std::uint8_t> drain() {
    std::vector<std::uint8_t> bytes;
    for (const iovec& entry : batch.entries()) {
      const auto* from = static_cast<const std::uint8_t*>(entry.iov_base);
      bytes.insert(bytes.end(), from, from + entry.iov_len);
    }
    batch.advance(bytes.size());
    CHECK_FALSE(batch.is_open());
    return bytes;
  }

  std::vector<std::uint8_t> memory;
  const_buffer_view view;
  const_view_cursor cursor;
  outgoing_batch batch;
};

}  // namespace

TEST_SUITE("host outgoing batch") {
  TEST_CASE("the last slice is followed by its completion") {
    slice s;
    CHECK(s.cursor.at_end());
    const auto bytes = s.drain();
    REQUIRE(bytes.size() == 2 * frame_size + 50'000);
    CHECK(bytes[frame_size] == 7);
    CHECK(bytes[frame_size + 50'000] == static_cast<std::uint8_t>(frame_kind::complete));
  }

  TEST_CASE("memory taken back becomes zeros of the same length that nothing completes") {
    for (const std::size_t sent : {0U, 10U, 40U, 41U, 30'000U, 50'039U}) {
      CAPTURE(sent);
      slice s;
      s.batch.advance(sent);
      REQUIRE(s.batch.reads_user_memory());
      s.batch.release_user_memory();
      CHECK_FALSE(s.batch.reads_user_memory());
      std::vector<std::uint8_t>().swap(s.memory);
      const auto bytes = s.drain();
      REQUIRE(bytes.size() == frame_size + 50'000 - sent);
      const auto zeros =
          static_cast<std::ptrdiff_t>(std::min<std::size_t>(50'000, bytes.size()));
      CHECK(std::all_of(bytes.end() - zeros, bytes.end(), [](auto b) { return b == 0; }));
    }
  }

  TEST_CASE("frames have gone when their own bytes have, whatever stands behind them") {
    std::vector<std::uint8_t> memory(50'000, 7);
    const const_buffer_view view(memory);
    const_view_cursor cursor(const_view_list(std::span(&view, 1)));
    outgoing_batch batch;
    batch.append(numbered(frame_kind::complete));
    const std::uint64_t first = batch.appended();
    CHECK(batch.gone() < first);
    batch.open_with_slice(numbered(frame_kind::data), cursor, 1 << 20,
                          numbered(frame_kind::complete));
    CHECK(batch.gone() < first);
    batch.advance(frame_size - 1);
    CHECK(batch.gone() < first);
    batch.advance(1);
    CHECK(batch.gone() == first);
    // A peer that reads no more of the slice does not hold up what it was told before.
    batch.advance(frame_size + 100);
    CHECK(batch.gone() == batch.appended() - frame_size);
    SUBCASE("to its end") { batch.advance(50'000 - 100 + frame_size); }
    SUBCASE("with zeros in the place of memory that was taken back") {
      batch.release_user_memory();
      const std::uint64_t before = batch.gone();
      batch.advance(20'000);
      CHECK(batch.gone() == before);
      batch.advance(50'000 - 100 - 20'000);
    }
    CHECK_FALSE(batch.is_open());
    CHECK(batch.gone() == batch.appended());
  }

  TEST_CASE(
      "once the slice is sent nothing refers to the user's memory, though frames are "
      "left") {
    slice s;
    s.batch.advance(frame_size + 50'000);
    CHECK(s.batch.is_open());
    CHECK_FALSE(s.batch.reads_user_memory());
    CHECK(s.drain().size() == frame_size);
  }
}
