// Chunks and offers, with honest peers and with others.
#include <doctest/doctest.h>

#include <memory>
#include <random>
#include <vector>

#include "link/chunk_slab.hpp"
#include "link/offer_table.hpp"

TEST_SUITE_BEGIN("link/shared memory");

using namespace manyworlds::shm;

namespace {

using outcome = allocated_chunk::outcome;
using standing = offer_sender::standing;

struct slab {
  chunk_states states{};
  chunk_writer writer{states};
  chunk_reader reader{states};

  unsigned allocate() {
    const auto got = writer.allocate();
    REQUIRE(got.result == outcome::allocated);
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

TEST_CASE("an offer that is taken cannot be withdrawn, and the other way round") {
  table offers;
  const auto first = *offers.sender->offer();
  CHECK(offers.sender->look(first) == standing::open);
  CHECK(offers.receiver.still_offered(first));
  CHECK(offers.receiver.take(first));
  CHECK_FALSE(offers.receiver.take(first));
  CHECK(offers.sender->look(first) == standing::taken);
  CHECK(offers.sender->withdraw(first) == standing::taken);

  const auto second = *offers.sender->offer();
  CHECK(offers.sender->withdraw(second) == standing::withdrawn);
  CHECK_FALSE(offers.receiver.still_offered(second));
  CHECK_FALSE(offers.receiver.take(second));
}

TEST_CASE("a ticket of an earlier use takes nothing") {
  table offers;
  const auto old = *offers.sender->offer();
  CHECK(offers.sender->withdraw(old) == standing::withdrawn);
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
    CHECK(offers.sender->withdraw(all[index]) == standing::withdrawn);
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
    CHECK(offers.sender->look(ticket) == standing::corrupt);
    CHECK(offers.sender->withdraw(ticket) == standing::corrupt);
    CHECK(offers.words->words[ticket.index] == garbage);
  }
  CHECK(offer_receiver::valid(ticket));
  CHECK_FALSE(offer_receiver::valid({offer_table::offers, 1}));
  CHECK_FALSE(offer_receiver::valid({~0u, 1}));
  CHECK_FALSE(offer_receiver::valid({0, 0}));
  CHECK_FALSE(offer_receiver::valid({0, std::uint64_t{1} << 56}));
}

TEST_SUITE_END();
