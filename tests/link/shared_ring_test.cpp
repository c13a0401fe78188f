// The ring of cells: full, wrapping, and with a peer that lies.
#include "link/cell_ring.hpp"

#include <doctest/doctest.h>

#include <random>

#include "link/shared_ring_fixture.hpp"

TEST_SUITE_BEGIN("link/shared memory");

using namespace manyworlds::shm;
using namespace manyworlds::detail::shm::testing;

TEST_CASE("cells come in order, also when the positions wrap at 2^32") {
  direction shared{};
  constexpr std::uint32_t start = 0u - 100;
  // As if all positions before had been used.
  for (std::uint32_t before = start - cell_ring::capacity; before != start; ++before)
    shared.ring.at(before).sequence = before + 1;
  shared.ring.consumed = start;
  ring_writer writer{shared.ring, start};
  ring_reader reader{shared.ring, start};
  for (auto position = start; position != 200; ++position) {
    CHECK_FALSE(reader.ready());
    REQUIRE(writer.reserve(1) == room::enough);
    writer.fill(0, content_of(position));
    CHECK_FALSE(reader.ready());
    writer.publish(1);
    REQUIRE(reader.ready());
    CHECK(whole(reader.front(), position));
    (void)reader.pop();
  }
}

TEST_CASE("a full ring says so, and has room for a large batch once it was read") {
  both_ends both;
  std::uint32_t written = 0;
  for (; both.writer.reserve(1) == room::enough; ++written) both.write(1);
  CHECK(written == cell_ring::capacity);
  CHECK(both.writer.reserve(1) == room::full);
  CHECK(both.read_all() == written);
  CHECK(both.writer.reserve(cell_ring::largest_batch) == room::enough);
}

TEST_CASE("what is reserved is so until it is published, and only a look finds more") {
  both_ends both;
  CHECK(both.writer.is_reserved(cell_ring::capacity));
  while (both.writer.reserve(1) == room::enough) both.write(1);
  CHECK_FALSE(both.writer.is_reserved(1));
  (void)both.read_all();
  CHECK_FALSE(both.writer.is_reserved(1));
  CHECK(both.writer.reserve(1) == room::enough);
  CHECK(both.writer.is_reserved(cell_ring::largest_batch));
}

TEST_CASE("wherever the reader stands, a largest batch fits when it has read all") {
  both_ends both;
  for (std::uint32_t step = 1; step != 200; ++step) {
    const auto cells = step % cell_ring::largest_batch + 1;
    REQUIRE(both.writer.reserve(cells) == room::enough);
    both.write(cells);
    CHECK(both.read_all() == cells);
    CHECK(both.writer.reserve(cell_ring::largest_batch) == room::enough);
  }
}

TEST_CASE("a reader that claims what it cannot have read is corrupt from then on") {
  for (const std::uint32_t claim : {65u, 0u - 1, 0x8000'0000u, 1000u}) {
    both_ends both;
    both.write(cell_ring::capacity);
    both.shared->ring.consumed = claim;
    CHECK(both.writer.reserve(1) == room::corrupt);
    both.shared->ring.consumed = cell_ring::capacity;
    CHECK(both.writer.reserve(1) == room::corrupt);
  }
}

TEST_CASE("a reader that goes back is corrupt") {
  both_ends both;
  both.write(cell_ring::capacity);
  both.read_all();
  REQUIRE(both.writer.reserve(1) == room::enough);
  both.write(cell_ring::capacity);
  both.shared->ring.consumed = cell_ring::capacity - 1;
  CHECK(both.writer.reserve(1) == room::corrupt);
}

TEST_CASE("cells of garbage never lead a reader out of its ring") {
  both_ends both;
  std::mt19937_64 random{1};
  std::uint32_t seen = 0;
  for (int round = 0; round != 20'000; ++round) {
    auto& cell = both.shared->ring.cells[random() % cell_ring::capacity];
    const auto near = both.reader.position() + static_cast<std::uint32_t>(random() % 3);
    cell.sequence = random() % 4 == 0 ? static_cast<std::uint32_t>(random()) : near;
    for (auto& word : cell.body) word = random();
    if (!both.reader.ready()) continue;
    (void)both.reader.front();
    (void)both.reader.pop();
    ++seen;
  }
  CHECK(seen > 100);
  CHECK(both.shared->ring.consumed <= both.reader.position());
}

TEST_SUITE_END();
