// Messages out of shared pools, where the sender's memory may be read and where not.
#include <random>

#include "cluster.hpp"
#include "host/cell_frame.hpp"
#include "manyworlds/memory/shared_buffer.hpp"
#include "support/entries.hpp"

using namespace manyworlds;
using namespace manyworlds::host_tests;

namespace {

using testing::open_descriptors;

const std::vector<ground> shared_grounds{ground::shared, ground::asking};

shared_buffer filled(shared_pool& pool, const std::vector<std::uint8_t>& with) {
  shared_buffer made = pool.allocate(with.size());
  std::memcpy(made.data(), with.data(), with.size());
  return made;
}

/// Member 0 has a backend, what member 1 writes into its slot is ours to choose.
struct stranger {
  stranger() : c(2, ground::asking), ring(c.link(1, 0).outgoing(cluster::slot)) {}

  void offer(host::remote_payload where, std::size_t bytes) {
    shm::shared_link& link = c.link(1, 0);
    where.ticket = *link.offers_out().offer();
    REQUIRE(link.add_chunks());
    const unsigned chunk = link.chunks_out().allocate().index;
    std::memcpy(link.chunk_out(chunk), &where, sizeof where);
    host::frame f;
    f.kind = host::frame_kind::offer;
    f.id = 1;
    f.bytes = bytes;
    shm::cell_content cell = host::cell_of(f);
    host::set_chunk(cell, chunk);
    REQUIRE(ring.reserve(1) == shm::room::enough);
    ring.fill(0, cell);
    ring.publish(1);
    link.notify(cluster::slot);
  }
  std::string answer() {
    c.until([&] { return !c[0].events.broken_by.empty(); }, std::chrono::seconds(5));
    return c[0].events.reason;
  }

  cluster c;
  shm::ring_writer ring;
};

}  // namespace

TEST_SUITE("host shared pool") {
  TEST_CASE("what is sent from a shared buffer arrives, and the pool was mapped for it") {
    for (const ground where : shared_grounds) {
      for (const std::size_t size : {8'193UL, 300'001UL, 17'000'003UL}) {
        CAPTURE(name_of(where));
        CAPTURE(size);
        cluster c(2, where);
        shared_pool pool(c[0].pools, size + 100);
        REQUIRE_MESSAGE(pool.refusal().empty(), pool.refusal());
        const auto sent = pattern(size);
        // Not at the pool's beginning.
        const shared_buffer before = pool.allocate(65);
        const shared_buffer memory = filled(pool, sent);
        std::vector<std::uint8_t> got(size);
        carry(c, memory, got);
        CHECK(got == sent);
        CHECK(c.link(1, 0).pools().mapped() == 1);
      }
    }
  }

  TEST_CASE("lists of shared and plain memory, cut differently at each end, arrive") {
    for (const ground where : shared_grounds) {
      for (const int plain_ones : {0, 1, 50}) {
        CAPTURE(name_of(where));
        CAPTURE(plain_ones);
        cluster c(2, where);
        shared_pool first(c[0].pools, 1 << 20);
        shared_pool second(c[0].pools, 1 << 20);
        const auto sent = pattern(150 * 5'001);
        std::vector<shared_buffer> shared;
        std::vector<std::vector<std::uint8_t>> plain;
        std::vector<const_buffer_view> views;
        for (int i = 0; i < 150; ++i) {
          const std::vector<std::uint8_t> part(sent.begin() + i * 5'001,
                                               sent.begin() + (i + 1) * 5'001);
          if (i < plain_ones) {
            plain.push_back(part);
            views.emplace_back(plain.back().data(), part.size(), dtype::uint8);
          } else {
            shared.push_back(filled(i % 3 == 0 ? second : first, part));
            views.emplace_back(shared.back());
          }
          views.emplace_back();
        }
        std::vector<std::uint8_t> got(sent.size());
        std::vector<buffer_view> places;
        const std::span<std::uint8_t> all(got);
        for (std::size_t at = 0; at < got.size(); at += 7'919) {
          places.emplace_back(
              all.subspan(at, std::min<std::size_t>(7'919, got.size() - at)));
        }
        carry(c, views, places);
        CHECK(got == sent);
        CHECK(c.link(1, 0).pools().mapped() == (plain_ones == 0 ? 2U : 0U));
        // The list that lay in the pool has gone from it.
        shared.clear();
        CHECK(first.allocate(first.size()).size() == first.size());
      }
    }
  }

  TEST_CASE("a list that finds no place in its pool goes another way, and whole") {
    for (const ground where : shared_grounds) {
      cluster c(2, where);
      shared_pool pool(c[0].pools, pool_memory::granule);
      const auto sent = pattern(pool.size());
      const shared_buffer memory = filled(pool, sent);
      const std::vector<const_buffer_view> halves{
          const_buffer_view(memory).slice(0, 100'000),
          const_buffer_view(memory).slice(100'000, sent.size() - 100'000)};
      std::vector<std::uint8_t> got(sent.size());
      carry(c, halves, got);
      CHECK(got == sent);
      CHECK(c.link(1, 0).pools().mapped() == 0);
    }
  }

  TEST_CASE("law 6: pools that come and go are let go by a peer, which does not grow") {
    for (const ground where : shared_grounds) {
      CAPTURE(name_of(where));
      cluster c(2, where);
      const auto sent = pattern(20'000);
      std::vector<std::uint8_t> got(sent.size());
      std::size_t before = 0;
      for (int i = 0; i < 1000; ++i) {
        shared_pool pool(c[0].pools, 1);
        const shared_buffer memory = filled(pool, sent);
        carry(c, memory, got);
        if (i == 10) before = open_descriptors();
        CHECK(c.link(1, 0).pools().mapped() <= 4);
      }
      CHECK(got == sent);
      CHECK(open_descriptors() <= before + 4);
      CHECK(c.until([&] { return c.link(1, 0).pools().mapped() == 0; }));
    }
  }

  TEST_CASE("law 4: a shared buffer given up half way is free for another use") {
    for (const ground where : shared_grounds) {
      CAPTURE(name_of(where));
      cluster c(2, where);
      constexpr std::size_t size = 32 << 20;
      shared_pool pool(c[0].pools, size);
      shared_buffer memory = pool.allocate(size);
      std::memset(memory.data(), 1, size);
      std::vector<std::uint8_t> got(size);
      send_op s;
      receive_op r;
      receive(c, r, 1, 0, got);
      send(c, s, 0, 1, memory);
      REQUIRE(c.until([&] { return r.begun || r.ended(); }));
      REQUIRE_FALSE(r.ended());
      if (c.at(0).withdraw(s)) s.end(operation_end::withdrawn);
      std::memset(memory.data(), 2, size);
      REQUIRE(c.until([&] { return s.ended() && r.ended(); }));
      // Taken before we gave up, or told that half of it is nothing.
      CHECK((s.done() ? r.done() : r.failed(cause::cancelled_by_peer)));
      // The next message is whole.
      carry(c, memory, got);
      CHECK(all_are(got, 2));
      memory = {};
    }
  }

  TEST_CASE("law 11: an offer from a pool that is none, or beyond its end, is named") {
    constexpr std::size_t bytes = 100'000;
    struct lie {
      host::remote_payload where;
      const char* verdict;
    };
    const auto in_pool = [](std::uint64_t pool, std::uint64_t offset,
                            std::uint64_t pieces = 0) {
      host::remote_payload where;
      where.pool = pool;
      where.offset = offset;
      where.pieces = pieces;
      return where;
    };
    const char* const beyond = "an offer beyond the end of its shared pool";
    const std::vector<lie> lies{
        {in_pool(2, 0), "an offer from a shared pool that was not passed"},
        {in_pool(65, 0), "an offer from a shared pool that cannot be one"},
        {in_pool(~std::uint64_t{0}, 0), "an offer from a shared pool that cannot be one"},
        {in_pool(1, pool_memory::granule - 10), beyond},
        {in_pool(1, ~std::uint64_t{0} - 100), beyond},
        {in_pool(1, pool_memory::granule - 10, 1), beyond},
        {in_pool(1, ~std::uint64_t{0} - 10, 3), beyond},
        {in_pool(1, 0, ~std::uint64_t{0}), "an offer of less than it says"},
        {in_pool(1, 0, 3), "an empty piece of an offer"},
        {in_pool(1, 24, 1), "an offer from a shared pool that cannot be one"},
        {in_pool(1, 48, 1), beyond},
        {in_pool(1, 72, 1), "an offer of less than it says"},
    };
    for (const lie& l : lies) {
      CAPTURE(l.where.pool);
      CAPTURE(l.where.offset);
      CAPTURE(l.where.pieces);
      stranger s;
      shared_pool pool(s.c[1].pools, 1);
      const shared_buffer memory = pool.allocate(pool.size());
      std::memset(memory.data(), 0, memory.size());
      // What the lists above say: no bytes; a foreign name; too many bytes; too few.
      const host::pool_piece pieces[] = {
          {0, 0, 0}, {99, 0, bytes}, {0, pool_memory::granule - 10, ~0UL}, {0, 0, 9}};
      std::memcpy(memory.data(), pieces, sizeof pieces);
      auto& exchange = s.c.link(1, 0).pools();
      REQUIRE(exchange.name_for_peer(*exchange.find(memory.data(), 1)) == 0U);
      std::vector<std::uint8_t> got(bytes);
      receive_op r;
      receive(s.c, r, 0, 1, got);
      s.offer(l.where, bytes);
      CHECK(s.answer() == std::string("rank 1 sent ") + l.verdict);
      CHECK(s.c[0].events.cause == cause::protocol_error);
    }
  }
}
