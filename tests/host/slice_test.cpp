// What is asked for, where reading is refused: slices in chunks that stand one behind
// another, or in fewer.
#include <chrono>
#include <string>

#include "cluster.hpp"
#include "host/cell_frame.hpp"

using namespace manyworlds;
using namespace manyworlds::host_tests;
using host::cell_slice_limit;
using host::frame;
using host::frame_kind;
using shm::chunk_size;

namespace {

constexpr std::size_t asked_bytes = 100'000;

frame data_slice(std::uint64_t offset, std::size_t bytes) {
  return {frame_kind::data, dtype::uint8, 0, 1, 0, 1, offset, bytes};
}

/// Member 0 waits for a message of `asked_bytes` bytes and has asked for it. Member 1 has
/// no turn: what it answers is ours to choose.
struct answerer {
  answerer() : c(2, ground::asking), ring(link().outgoing(cluster::slot)) {
    while (link().add_chunks()) {}
    receive(c, taker, 0, 1, got);
    host::remote_payload where;
    where.ticket = *link().offers_out().offer();
    const unsigned chunk = link().chunks_out().allocate().index;
    std::memcpy(link().chunk_out(chunk), &where, sizeof where);
    frame f;
    f.kind = frame_kind::offer;
    f.id = 1;
    f.bytes = asked_bytes;
    say(f, chunk);
    settle();
    REQUIRE(c[0].events.quiet());
  }

  shm::shared_link& link() { return c.link(1, 0); }
  void say(const frame& f, std::optional<unsigned> chunk = {}) {
    shm::cell_content cell = host::cell_of(f);
    if (chunk) host::set_chunk(cell, *chunk);
    REQUIRE(ring.reserve(1) == shm::room::enough);
    ring.fill(0, cell);
    ring.publish(1);
    link().notify(cluster::slot);
  }
  void settle() {
    for (int idle = 0; idle < 2000;) idle = c[0].home->turn() ? 0 : idle + 1;
  }

  // The receive outlives its backend.
  std::vector<std::uint8_t> got = std::vector<std::uint8_t>(asked_bytes);
  receive_op taker;
  cluster c;
  shm::ring_writer ring;
};

/// A message for which the sender has these chunks and no others.
void carry_in_chunks(const std::vector<unsigned>& left) {
  cluster c(2, ground::asking);
  shm::shared_link& link = c.link(0, 1);
  while (link.add_chunks()) {}
  for (unsigned index = 0; index != shm::chunk_states::chunks; ++index) {
    REQUIRE(link.chunks_out().allocate().index == index);
  }
  for (const unsigned index : left) link.chunks_out().give_back(index);
  const auto sent = pattern(300'001);
  std::vector<std::uint8_t> got(sent.size());
  carry(c, sent, got);
  CHECK(got == sent);
}

}  // namespace

TEST_SUITE("host slices") {
  TEST_CASE("slices of one chunk and of several make up one message") {
    answerer s;
    const auto sent = pattern(asked_bytes);
    std::size_t at = 0;
    for (unsigned count = 1; at < asked_bytes; count = count % 4 + 1) {
      const std::size_t bytes = std::min(count * chunk_size, asked_bytes - at);
      const auto chunks = static_cast<unsigned>(shm::chunks_of(bytes));
      const auto run = s.link().chunks_out().allocate(chunks);
      REQUIRE(run.result == shm::allocated_chunk::outcome::allocated);
      std::memcpy(s.link().chunk_out(run.index), sent.data() + at, bytes);
      s.say(data_slice(at, bytes), run.index);
      at += bytes;
    }
    frame complete;
    complete.kind = frame_kind::complete;
    complete.id = 1;
    complete.generation = 1;
    s.say(complete);
    s.settle();
    CHECK(s.taker.done());
    CHECK(s.got == sent);
    // All of them have come back.
    CHECK(s.link().chunks_out().allocate(60).index == 0);
  }

  TEST_CASE("law 11: a slice in chunks that are no run of its length is named") {
    struct lie {
      const char* what;
      unsigned index;
      std::size_t bytes;
    };
    const std::vector<lie> lies{
        {"from within a run", 9, cell_slice_limit - chunk_size},
        {"more than the run", 8, 4 * chunk_size},
        {"less than the run", 8, chunk_size},
        {"a run that is free", 32, cell_slice_limit},
        {"beyond the slab's end", 62, 3 * chunk_size},
        {"no chunk of the slab", 64, 3 * chunk_size},
        {"nowhere near it", 1'000'000, 3 * chunk_size},
    };
    for (const lie& l : lies) {
      CAPTURE(l.what);
      answerer s;
      for (unsigned index = 0; index != 8; ++index) {
        static_cast<void>(s.link().chunks_out().allocate());
      }
      shm::chunk_states& states = *reinterpret_cast<shm::chunk_states*>(
          s.link().segment().at(shm::offset::slab(s.link().side())));
      states.states[8] = 3;
      states.states[62] = states.states[63] = 3;
      s.say(data_slice(0, l.bytes), l.index);
      s.settle();
      CHECK(s.c[0].events.reason ==
            "rank 1 sent a frame with chunks that it cannot have");
      CHECK(s.c[0].events.cause == cause::protocol_error);
    }
  }

  TEST_CASE("law 11: a slice longer than any is named") {
    answerer s;
    const auto run = s.link().chunks_out().allocate(8);
    s.say(data_slice(0, cell_slice_limit + 1), run.index);
    s.settle();
    CHECK(s.c[0].events.reason == "rank 1 sent a slice of a wrong length");
  }

  TEST_CASE("where no chunks stand one behind another, slices of one chunk do") {
    std::vector<unsigned> every_other;
    for (unsigned index = 0; index != shm::chunk_states::chunks; index += 2) {
      every_other.push_back(index);
    }
    carry_in_chunks(every_other);
  }

  TEST_CASE("one chunk that is left carries a message of any length") {
    carry_in_chunks({17});
  }

  TEST_CASE("law 9: of one message's slices a turn takes a bounded number") {
    cluster c(2, ground::asking);
    const auto sent = pattern(8 << 20);
    std::vector<std::uint8_t> got(sent.size());
    send_op s;
    receive_op r;
    receive(c, r, 1, 0, got);
    send(c, s, 0, 1, sent);
    std::size_t most = 0;
    REQUIRE(c.until([&, before = std::size_t{0}]() mutable {
      most = std::max(most, r.bytes_moved - before);
      before = r.bytes_moved;
      return s.ended() && r.ended();
    }));
    CHECK(got == sent);
    CHECK(most > 0);
    CHECK(most <= std::size_t{512} * 1024);
  }
}
