// How an offer says where its payload lies: in its cell, or in a chunk.
#include <limits>

#include "cluster.hpp"
#include "host/cell_frame.hpp"

using namespace manyworlds;
using namespace manyworlds::host_tests;

namespace {

constexpr std::size_t offered_bytes = 100'000;

/// What member 0 has offered, as it stands in the ring.
shm::cell_content first_cell_sent(cluster& c) {
  shm::ring_reader reader(c.link(1, 0).incoming(cluster::slot));
  REQUIRE(reader.ready());
  return reader.front();
}

/// What member 0 says of an offer in a cell, written by a stranger.
std::string answer_to_cell(host::payload_in_one_place where, std::uint16_t head_bytes) {
  cluster c(2, ground::shared);
  shm::ring_writer peer(c.link(1, 0).outgoing(cluster::slot));
  host::frame f;
  f.kind = host::frame_kind::offer;
  f.id = 1;
  f.head_bytes = head_bytes;
  f.bytes = offered_bytes;
  shm::cell_content cell = host::cell_of(f);
  std::memcpy(host::inline_content(cell), &where, sizeof where);
  REQUIRE(peer.reserve(1) == shm::room::enough);
  peer.fill(0, cell);
  peer.publish(1);
  c.link(1, 0).notify(cluster::slot);
  c.until([&] { return !c[0].events.broken_by.empty(); }, std::chrono::seconds(5));
  return c[0].events.reason;
}

}  // namespace

TEST_SUITE("host offer cell") {
  TEST_CASE("a ticket and an address survive the cell") {
    host::remote_payload where;
    where.ticket.index = shm::offer_table::offers - 1;
    where.ticket.generation = (std::uint64_t{1} << 54) - 1;
    where.address = std::numeric_limits<std::uint64_t>::max();
    const host::remote_payload read = host::payload_in_one_place::of(where).whole();
    CHECK(read.ticket.index == where.ticket.index);
    CHECK(read.ticket.generation == where.ticket.generation);
    CHECK(read.address == where.address);
    CHECK(read.views == 0);
    CHECK(read.pool == 0);
  }

  TEST_CASE("what lies in one place is offered without a chunk, and arrives") {
    cluster c(2, ground::shared);
    const auto sent = pattern(offered_bytes);
    std::vector<std::uint8_t> got(offered_bytes);
    send_op s;
    send(c, s, 0, 1, sent);
    CHECK_FALSE(host::chunk_of(first_cell_sent(c)));
    receive_op r;
    receive(c, r, 1, 0, got);
    REQUIRE(c.until([&] { return s.ended() && r.ended(); }));
    CHECK(s.done());
    CHECK(r.done());
    CHECK(got == sent);
  }

  TEST_CASE("what lies in two places, or has a head, is described in a chunk") {
    const auto sent = pattern(offered_bytes);
    const std::array<const_buffer_view, 2> halves{
        const_buffer_view(std::span(sent).first(offered_bytes / 2)),
        const_buffer_view(std::span(sent).subspan(offered_bytes / 2))};
    std::uint64_t head = 7;
    send_op in_two_places;
    send_op with_head;
    with_head.head = &head;
    with_head.head_bytes = sizeof head;
    {
      cluster c(2, ground::shared);
      send(c, in_two_places, 0, 1, halves);
      CHECK(host::chunk_of(first_cell_sent(c)));
    }
    {
      cluster c(2, ground::shared);
      send(c, with_head, 0, 1, sent);
      CHECK(host::chunk_of(first_cell_sent(c)));
    }
  }

  TEST_CASE("law 11: an offer in its cell that cannot be one is named") {
    CHECK(answer_to_cell({5, 0}, 0) == "rank 1 sent an offer that cannot be one");
    CHECK(answer_to_cell({std::uint64_t{1} << 10, 0}, 8) ==
          "rank 1 sent a frame without its content");
  }
}
