// Chunks and offers, with honest peers and with others.
#include <doctest/doctest.h>

#include <memory>
#include <random>
#include <vector>

#include "link/chunk_owners.hpp"
#include "link/chunk_slab.hpp"
#include "link/offer_table.hpp"

TEST_SUITE_BEGIN("link/shared memory");

using namespace manyworlds::shm;

namespace {

using outcome = allocated_chunk::outcome;
using status = offer_sender::status;

struct slab {
  chunk_states states{};
  chunk_writer writer{states};
  chunk_reader reader{states};

  unsigned allocate(unsigned count = 1) {
    const auto got = writer.allocate(count);
    REQUIRE(got.result == outcome::allocated);
    CHECK(got.count == count);
    return got.index;
  }
};

struct table {
  std::unique_ptr<offer_table> words = std::make_unique<offer_table>();
  std::unique_ptr<offer_sender> sender = std::make_unique<offer_sender>(*words);
  offer_receiver receiver{*words};
};

}  // namespace

TEST_CASE(
    "the lowest free chunk is allocated first, but what was freed rests meanwhile") {
  slab chunks;
  chunks.writer.allow(10);
  for (unsigned index = 0; index != 8; ++index) CHECK(chunks.allocate() == index);
  chunks.reader.free(7);
  chunks.reader.free(2);
  CHECK_FALSE(chunks.reader.writer_waits());
  CHECK(chunks.allocate() == 8);
  CHECK(chunks.allocate() == 9);
  CHECK(chunks.allocate() == 2);
  CHECK(chunks.allocate() == 7);
  chunks.writer.give_back(4);
  CHECK(chunks.allocate() == 4);
  chunks.writer.allow(11);
  CHECK(chunks.allocate() == 10);
}

TEST_CASE("a writer without a free chunk is told of the next one") {
  slab chunks;
  for (unsigned index = 0; index != chunk_states::chunks; ++index) chunks.allocate();
  CHECK(chunks.writer.allocate().result == outcome::none_free);
  REQUIRE(chunks.writer.must_wait_for_chunk());
  chunks.reader.free(30);
  CHECK(chunks.reader.writer_waits());
  chunks.reader.free(31);
  CHECK_FALSE(chunks.reader.writer_waits());
  CHECK_FALSE(chunks.writer.must_wait_for_chunk());
  CHECK(chunks.allocate() == 30);
}

TEST_CASE("a chunk that is not in use, or none at all, is not valid") {
  slab chunks;
  CHECK_FALSE(chunks.reader.valid(0));
  chunks.allocate();
  CHECK(chunks.reader.valid(0));
  CHECK_FALSE(chunks.reader.valid(1));
  for (const std::uint64_t index : {64ull, 255ull, ~0ull})
    CHECK_FALSE(chunks.reader.valid(index));
  chunks.states.states[0] = 77;
  CHECK_FALSE(chunks.reader.valid(0));
}

TEST_CASE("a state of garbage is corrupt, and no chunk is allocated from then on") {
  slab chunks;
  chunks.writer.allow(1);
  chunks.allocate();
  chunks.states.states[0] = 77;
  CHECK(chunks.writer.allocate().result == outcome::corrupt);
  CHECK_FALSE(chunks.writer.must_wait_for_chunk());
  chunks.states.states[0] = 0;
  CHECK(chunks.writer.allocate().result == outcome::corrupt);
}

TEST_CASE("states of chunks that are not in use are not looked at") {
  slab chunks;
  for (auto& state : chunks.states.states) state = 200;
  CHECK(chunks.allocate() == 0);
  CHECK(chunks.allocate() == 1);
}

TEST_CASE("a run is allocated where all of its chunks are free, the lowest first") {
  slab chunks;
  chunks.writer.allow(11);
  CHECK(chunks.allocate(4) == 0);
  CHECK(chunks.allocate() == 4);
  CHECK(chunks.allocate(4) == 5);
  chunks.reader.free(4);
  CHECK(chunks.allocate(2) == 9);
  chunks.reader.free(0);
  CHECK(chunks.allocate(3) == 0);
  CHECK(chunks.allocate() == 3);
  // 4 alone is free below.
  chunks.writer.allow(13);
  CHECK(chunks.allocate(2) == 11);
  CHECK(chunks.allocate() == 4);
}

TEST_CASE("a run has only chunks that may be used") {
  chunk_states states{};
  chunk_writer writer{states, 6};
  CHECK(writer.allocate(4).index == 0);
  CHECK(writer.allocate(4).result == outcome::none_free);
  CHECK(writer.allocate(2).index == 4);
  writer.allow(chunk_states::chunks);
  for (unsigned index = 6; index != 62; index += 4)
    CHECK(writer.allocate(4).index == index);
  CHECK(writer.allocate(4).result == outcome::none_free);
  CHECK(writer.allocate(2).index == 62);
  CHECK(writer.allocate().result == outcome::none_free);
}

TEST_CASE("a run comes back whole, however it is given back") {
  slab chunks;
  CHECK(chunks.allocate(64) == 0);
  chunks.reader.free(0);
  CHECK(chunks.allocate(64) == 0);
  chunks.writer.give_back(0);
  CHECK(chunks.allocate(64) == 0);
}

TEST_CASE("what is no longer a run is not given back with another that it is part of") {
  slab chunks;
  chunks.writer.allow(5);
  for (unsigned index = 0; index != 4; ++index) chunks.allocate();
  for (unsigned index = 0; index != 4; ++index) chunks.reader.free(index);
  CHECK(chunks.allocate(4) == 0);
  chunks.writer.give_back(2);
  CHECK(chunks.reader.valid(0, 4));
  CHECK(chunks.allocate() == 4);
}

TEST_CASE("a run is valid by its first chunk and its length alone") {
  slab chunks;
  chunks.allocate();
  CHECK(chunks.allocate(4) == 1);
  CHECK(chunks.reader.valid(1, 4));
  for (const std::size_t count : {0ul, 1ul, 3ul, 5ul, 260ul, ~0ul})
    CHECK_FALSE(chunks.reader.valid(1, count));
  for (const unsigned index : {0u, 2u, 4u, 5u}) {
    CHECK_FALSE(chunks.reader.valid(index, 4));
    CHECK_FALSE(chunks.reader.valid(index, 2));
  }
}

TEST_CASE("a run that ends beyond the slab is not valid, whatever its state says") {
  slab chunks;
  for (auto& state : chunks.states.states) state = 4;
  CHECK(chunks.reader.valid(60, 4));
  for (unsigned index = 61; index != 64; ++index)
    CHECK_FALSE(chunks.reader.valid(index, 4));
}

TEST_CASE("a run is corrupt when its reader has changed its length") {
  for (const int state : {1, 3, 5, 255}) {
    slab chunks;
    chunks.writer.allow(4);
    chunks.allocate(4);
    chunks.states.states[0] = static_cast<std::uint8_t>(state);
    CHECK(chunks.writer.allocate().result == outcome::corrupt);
  }
}

TEST_CASE("what the states within a run say means nothing") {
  slab chunks;
  chunks.writer.allow(8);
  chunks.allocate(4);
  for (const unsigned index : {1u, 2u, 3u}) chunks.states.states[index] = 200;
  CHECK(chunks.allocate(4) == 4);
  chunks.reader.free(0);
  CHECK(chunks.allocate(4) == 0);
}

TEST_CASE("the runs of a world that is over come back whole, and no others") {
  constexpr unsigned ended = 3, other = 4;
  slab chunks;
  chunks.writer.allow(4);
  chunk_owners owners;
  const auto allocate_for = [&](unsigned slot, unsigned count) {
    const unsigned index = chunks.allocate(count);
    owners.note_allocated(index, slot);
    return index;
  };
  // What was the one's and came back is part of the other's run.
  for (int chunk = 0; chunk != 4; ++chunk) allocate_for(ended, 1);
  for (unsigned index = 0; index != 4; ++index) chunks.reader.free(index);
  CHECK(allocate_for(other, 4) == 0);
  chunks.writer.allow(chunk_states::chunks);
  while (chunks.writer.allocate(4).result == outcome::allocated) {}
  chunks.writer.give_back(8);
  chunks.writer.give_back(12);
  CHECK(allocate_for(ended, 8) == 8);
  slot_set by_peer;
  by_peer.insert(ended);
  owners.note_given_back(by_peer);
  owners.reclaim_over([](unsigned) { return false; },
                      [&](unsigned chunk) { chunks.writer.give_back(chunk); });
  CHECK(chunks.reader.valid(0, 4));
  CHECK(chunks.allocate(8) == 8);
  CHECK(chunks.writer.allocate().result == outcome::none_free);
}

TEST_CASE("an offer that is taken cannot be withdrawn, and the other way round") {
  table offers;
  const auto first = *offers.sender->offer();
  CHECK(offers.sender->poll(first) == status::open);
  CHECK(offers.receiver.still_offered(first));
  CHECK(offers.receiver.take(first));
  CHECK_FALSE(offers.receiver.take(first));
  CHECK(offers.sender->poll(first) == status::taken);
  CHECK(offers.sender->withdraw(first) == status::taken);

  const auto second = *offers.sender->offer();
  CHECK(offers.sender->withdraw(second) == status::withdrawn);
  CHECK_FALSE(offers.receiver.still_offered(second));
  CHECK_FALSE(offers.receiver.take(second));
}

TEST_CASE("a ticket of an earlier use takes nothing") {
  table offers;
  const auto old = *offers.sender->offer();
  CHECK(offers.sender->withdraw(old) == status::withdrawn);
  offers.sender->finish(old);
  const auto now = *offers.sender->offer();
  CHECK(now.index == old.index);
  CHECK_FALSE(offers.receiver.still_offered(old));
  CHECK_FALSE(offers.receiver.take(old));
  CHECK(offers.receiver.take(now));
}

TEST_CASE("a full table gives no offer until one is finished, and the lowest first") {
  table offers;
  std::vector<offer_ticket> all;
  while (const auto ticket = offers.sender->offer()) all.push_back(*ticket);
  CHECK(all.size() == offer_table::offers);
  for (const auto index : {900u, 5u}) {
    CHECK(offers.sender->withdraw(all[index]) == status::withdrawn);
    offers.sender->finish(all[index]);
    offers.sender->finish(all[index]);
  }
  CHECK(offers.sender->offer()->index == 5);
  CHECK(offers.sender->offer()->index == 900);
  CHECK_FALSE(offers.sender->offer());
}

TEST_CASE("a word that no receiver sets is corrupt, and garbage tickets are not valid") {
  table offers;
  const auto ticket = *offers.sender->offer();
  std::mt19937_64 random{3};
  for (int round = 0; round != 1000; ++round) {
    const auto garbage = random() | 0xf0;
    offers.words->words[ticket.index] = garbage;
    CHECK(offers.sender->poll(ticket) == status::corrupt);
    CHECK(offers.sender->withdraw(ticket) == status::corrupt);
    CHECK(offers.words->words[ticket.index] == garbage);
  }
  CHECK(offer_receiver::valid(ticket));
  CHECK_FALSE(offer_receiver::valid({offer_table::offers, 1}));
  CHECK_FALSE(offer_receiver::valid({~0u, 1}));
  CHECK_FALSE(offer_receiver::valid({0, 0}));
  CHECK_FALSE(offer_receiver::valid({0, std::uint64_t{1} << 56}));
}

TEST_SUITE_END();
