#include "host/lane_matcher.hpp"

#include <doctest/doctest.h>

#include <deque>

#include "cluster.hpp"

using namespace manyworlds;
using namespace manyworlds::host_tests;
using host::inbound_message;

namespace {

struct recorded_matches final : host::match_listener {
  void pull(inbound_message& m) override { pulled.push_back(&m); }
  void consumed(inbound_message& m, bool was_received) override {
    consumed_ids.push_back(was_received ? m.id : 0);
  }
  std::vector<inbound_message*> pulled;
  std::vector<std::uint64_t> consumed_ids;
};

struct bench {
  explicit bench(std::size_t known = 100) : matcher(3, known, events) {}

  inbound_message made(rank_t source, std::uint64_t lane, std::size_t bytes) {
    inbound_message m;
    m.source = source;
    m.on = &matcher.lane_of(source, lane);
    m.id = ++last_id;
    m.payload_bytes = bytes;
    return m;
  }
  inbound_message* arrives(rank_t source, std::uint64_t lane) {
    inbound_message m = made(source, lane, content.size());
    m.content = content;
    return matcher.arrive(m);
  }
  inbound_message* offered(rank_t source, std::uint64_t lane) {
    inbound_message m = made(source, lane, content.size());
    m.offered = true;
    inbound_message* kept = matcher.keep(m);
    matcher.announce(*kept);
    return kept;
  }
  receive_op& receive_from(rank_t peer, std::uint64_t lane_number, bool fresh = false) {
    receive_op& op = receives.emplace_back();
    op.peer = peer;
    op.on = lane(lane_number);
    op.takes_fresh_lanes = fresh;
    op.into_list = scatter_list(std::span(into));
    op.target = op.into_list.views();
    matcher.post(op);
    return op;
  }

  /// Asks for what is here, as one that would not wait.
  bool tries(receive_op& op, rank_t peer, std::uint64_t lane_number) {
    op.peer = peer;
    op.on = lane(lane_number);
    if (op.head_bytes == 0) op.target = op.into_list.views();
    return matcher.try_take(op);
  }
  /// Lets the lane be one that is received on.
  void names(rank_t peer, std::uint64_t lane_number) {
    arrives(peer == no_rank ? 1 : peer, lane_number);
    CHECK(receive_from(peer, lane_number).done());
  }

  recorded_matches events;
  host::lane_matcher matcher;
  std::array<std::byte, 8> content{std::byte{42}};
  std::array<std::byte, 8> into{};
  std::deque<receive_op> receives;
  std::uint64_t last_id = 0;
};

}  // namespace

TEST_SUITE("host lane matcher") {
  TEST_CASE("a receive that waits gets the message without it being kept") {
    bench b;
    receive_op& r = b.receive_from(1, 5);
    CHECK(b.arrives(1, 5) == nullptr);
    CHECK(r.done());
    CHECK(b.into[0] == std::byte{42});
    CHECK(b.events.consumed_ids == std::vector<std::uint64_t>{1});
  }

  TEST_CASE("what is behind a pulled message waits for it") {
    bench b;
    receive_op& first = b.receive_from(1, 5);
    receive_op& second = b.receive_from(1, 5);
    inbound_message* m = b.offered(1, 5);
    CHECK(m->taker == &first);
    CHECK(b.arrives(1, 5) != nullptr);
    CHECK_FALSE(second.ended());
    b.matcher.complete(*m);
    CHECK(first.done());
    CHECK(second.done());
  }

  TEST_CASE("a released message goes to the next receive and none overtakes it") {
    bench b;
    receive_op& first = b.receive_from(1, 5);
    inbound_message* m = b.offered(1, 5);
    CHECK(b.arrives(1, 5) != nullptr);
    b.matcher.release_taker(*m);
    CHECK(first.ends == 0);
    receive_op& next = b.receive_from(1, 5);
    CHECK(m->taker == &next);
    CHECK(b.events.pulled.size() == 2);
    b.matcher.complete(*m);
    CHECK(next.done());
    CHECK(b.receive_from(1, 5).done());
  }

  TEST_CASE("a receive of any fresh lane passes over what is still being brought") {
    bench b;
    inbound_message* first = b.offered(1, 10);
    first->collecting = true;
    REQUIRE(b.arrives(1, 11) != nullptr);
    CHECK(b.receive_from(1, 0, true).done());
    receive_op& waits = b.receive_from(1, 0, true);
    CHECK_FALSE(waits.ended());
    b.matcher.collected(*first);
    CHECK(waits.done());
  }

  TEST_CASE("each message that has been brought wakes a receive of any fresh lane") {
    bench b;
    inbound_message* brought[2];
    for (std::uint64_t lane = 10; lane < 12; ++lane) {
      brought[lane - 10] = b.offered(1, lane);
      brought[lane - 10]->collecting = true;
    }
    receive_op& first = b.receive_from(1, 0, true);
    receive_op& second = b.receive_from(no_rank, 0, true);
    b.matcher.collected(*brought[1]);
    CHECK(first.done());
    CHECK_FALSE(second.ended());
    b.matcher.collected(*brought[0]);
    CHECK(second.done());
  }

  TEST_CASE("a receive keeps its place when its message is withdrawn unbegun") {
    bench b;
    receive_op& first = b.receive_from(1, 5);
    receive_op& second = b.receive_from(1, 5);
    inbound_message* m = b.offered(1, 5);
    b.matcher.withdraw(*m);
    CHECK_FALSE(first.ended());
    CHECK(b.arrives(1, 5) == nullptr);
    CHECK(first.done());
    CHECK_FALSE(second.ended());
    b.matcher.unpost(second);
  }

  TEST_CASE("a receive is told when its message is withdrawn half way") {
    bench b;
    receive_op& r = b.receive_from(1, 5);
    inbound_message* m = b.offered(1, 5);
    m->received = 3;
    b.matcher.withdraw(*m);
    CHECK(r.failed(cause::cancelled_by_peer));
  }

  TEST_CASE("fresh lanes are served in the order of their first messages") {
    bench b;
    b.arrives(1, 30);
    b.arrives(1, 20);
    b.arrives(1, 30);
    CHECK(b.receive_from(1, 0, true).info.on == lane(30));
    CHECK(b.receive_from(1, 0, true).info.on == lane(20));
    receive_op& third = b.receive_from(1, 0, true);
    CHECK_FALSE(third.ended());
    b.matcher.unpost(third);
  }

  TEST_CASE(
      "a lane that was forgotten is fresh again, and what is remembered is bounded") {
    bench b(4);
    for (std::uint64_t lane_number = 1; lane_number <= 100; ++lane_number) {
      b.arrives(1, lane_number);
      CHECK(b.receive_from(1, 0, true).done());
    }
    b.arrives(1, 1);
    CHECK(b.receive_from(1, 0, true).done());
    b.arrives(1, 1);
    receive_op& again = b.receive_from(1, 0, true);
    CHECK_FALSE(again.ended());
    b.matcher.unpost(again);
  }

  TEST_CASE("when a member leaves only what waits for it alone is closed") {
    bench b;
    receive_op& exact = b.receive_from(1, 5);
    receive_op& any_member = b.receive_from(no_rank, 5);
    receive_op& other = b.receive_from(2, 5);
    b.matcher.peer_left(1);
    CHECK(exact.failed(cause::closed));
    CHECK_FALSE(any_member.ended());
    CHECK_FALSE(other.ended());
    b.matcher.peer_left(2);
    CHECK(any_member.failed(cause::closed));
    CHECK(other.failed(cause::closed));
  }

  TEST_CASE("what is here ends at once: from any member, in pieces, with a head") {
    bench b;
    b.names(no_rank, 5);
    b.arrives(2, 5);
    receive_op whole;
    whole.into_list = scatter_list(std::span(b.into));
    CHECK(b.tries(whole, no_rank, 5));
    CHECK(whole.info.source == 2);
    CHECK(b.into[0] == std::byte{42});

    b.arrives(1, 5);
    std::array<std::byte, 3> first{};
    std::array<std::byte, 5> second{};
    receive_op pieces;
    pieces.into_list = scatter_list(first, second);
    CHECK(b.tries(pieces, 1, 5));
    CHECK(first[0] == std::byte{42});
    CHECK(pieces.bytes_moved == 8);

    inbound_message with_head = b.made(1, 5, 4);
    with_head.head_bytes = 4;
    with_head.content = b.content;
    REQUIRE(b.matcher.arrive(with_head) != nullptr);
    std::array<std::byte, 4> at{};
    receive_op head;
    head.head = at.data();
    head.head_bytes = at.size();
    CHECK(b.tries(head, 1, 5));
    CHECK(at[0] == std::byte{42});
    CHECK(head.info.bytes == 4);
    // What follows it is the next message.
    receive_op behind;
    std::array<std::byte, 4> rest{};
    behind.into_list = scatter_list(std::span(rest));
    CHECK(b.tries(behind, 1, 5));
    CHECK(b.events.consumed_ids == std::vector<std::uint64_t>{1, 2, 3, 4});
    // None of them was ended: they never began.
    for (const receive_op* op : {&whole, &pieces, &head, &behind}) CHECK(op->ends == 0);
  }

  TEST_CASE("an arrival that is known takes nothing") {
    bench b;
    b.arrives(1, 5);
    receive_op arrival;
    arrival.kind = operation_kind::arrival;
    CHECK(b.tries(arrival, no_rank, 5));
    CHECK(arrival.info.bytes == 8);
    CHECK(b.events.consumed_ids.empty());
    CHECK(b.receive_from(1, 5).done());
  }

  TEST_CASE("what would not end at once is left as it was") {
    bench b;
    receive_op op;
    op.into_list = scatter_list(std::span(b.into));
    // Nothing is here, or its lane was not named yet.
    CHECK_FALSE(b.tries(op, 1, 5));
    b.arrives(1, 5);
    CHECK_FALSE(b.tries(op, 1, 5));
    CHECK(b.receive_from(1, 5).done());
    // Of any member a lane is named for all of them.
    b.arrives(1, 5);
    CHECK_FALSE(b.tries(op, no_rank, 5));
    CHECK(b.receive_from(no_rank, 5).done());
    // It does not fit, or is not here whole.
    b.arrives(1, 5);
    receive_op short_one;
    short_one.into_list = scatter_list(std::span(b.into).first(3));
    CHECK_FALSE(b.tries(short_one, 1, 5));
    CHECK(b.receive_from(1, 5).done());
    inbound_message* const offered = b.offered(1, 5);
    CHECK_FALSE(b.tries(op, 1, 5));
    b.matcher.drop(*offered);
    // Receives from any member go on in turns, as if it had not been asked.
    b.arrives(1, 5);
    b.arrives(2, 5);
    const rank_t next = b.receive_from(no_rank, 5).info.source;
    CHECK_FALSE(b.tries(short_one, no_rank, 5));
    CHECK(b.receive_from(no_rank, 5).info.source == 3 - next);
  }
}
