#include <cstring>
#include <deque>

#include "cluster.hpp"

using namespace manyworlds;
using namespace manyworlds::host_tests;
using namespace std::chrono_literals;

namespace {

void leave(cluster& c, rank_t rank, duration limit = 5s) {
  c.at(rank).leave(c[rank].gone, c[rank].home->now() + limit);
}

}  // namespace

TEST_SUITE("host ending") {
  TEST_CASE(
      "a leave loses nothing of what was sent, and neither side calls it a failure") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g);
      const auto sent = pattern(1U << 20);
      std::deque<std::vector<std::uint8_t>> got(10);
      std::deque<send_op> sends(20);
      std::deque<receive_op> receives(20);
      std::uint64_t word = 3;
      std::vector<std::uint64_t> words(10);
      for (std::size_t i = 0; i < 10; ++i) {
        send(c, sends[i], 0, 1, sent, i);
        send(c, sends[10 + i], 0, 1, std::span(&word, 1), i);
      }
      leave(c, 0);
      for (std::size_t i = 0; i < 10; ++i) {
        got[i].resize(sent.size());
        receive(c, receives[i], 1, 0, got[i], i);
        if (i % 2 == 0) receive(c, receives[10 + i], 1, 0, std::span(&words[i], 1), i);
      }
      REQUIRE(c.until([&] { return c[0].gone.runs == 1 && !c[1].events.left.empty(); }));
      for (std::size_t i = 0; i < 10; ++i) {
        CHECK(sends[i].done());
        CHECK(receives[i].done());
        CHECK(got[i] == sent);
        // What is here stays receivable after the sender is gone.
        if (i % 2 == 1) receive(c, receives[10 + i], 1, 0, std::span(&words[i], 1), i);
        CHECK(receives[10 + i].done());
      }
      receive_op late;
      receive(c, late, 1, 0, std::span(&words[0], 1));
      CHECK(late.failed(cause::closed));
      send_op refused;
      send(c, refused, 1, 0, std::span(&word, 1));
      CHECK(refused.failed(cause::closed));
      CHECK(c[0].events.quiet());
      CHECK(c[1].events.quiet());
    }
  }

  TEST_CASE("both may leave at once") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(3, g);
      for (rank_t r = 0; r < 3; ++r) leave(c, r);
      REQUIRE(c.until([&] {
        return c[0].gone.runs == 1 && c[1].gone.runs == 1 && c[2].gone.runs == 1;
      }));
      for (rank_t r = 0; r < 3; ++r) CHECK(c[r].events.quiet());
    }
  }

  TEST_CASE("leaving ends what waits, here and at the peers, as closed") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g);
      std::uint64_t word = 1;
      const auto large = pattern(4U << 20);
      std::vector<std::uint8_t> got(large.size());
      receive_op here;
      receive(c, here, 0, 1, std::span(&word, 1), 1);
      receive_op there;
      receive(c, there, 1, no_rank, std::span(&word, 1), 1);
      send_op begun_send;
      send(c, begun_send, 1, 0, large, 2);
      receive_op begun_receive;
      receive(c, begun_receive, 0, 1, got, 2);
      REQUIRE(c.until([&] { return begun_receive.bytes_moved > 0; }));
      leave(c, 0);
      REQUIRE(c.until([&] { return c[0].gone.runs == 1 && begun_send.ended(); }));
      CHECK(here.failed(cause::closed));
      CHECK(there.failed(cause::closed));
      CHECK(begun_receive.failed(cause::closed));
      CHECK(begun_send.failed(cause::closed));
      CHECK(c[1].events.quiet());
    }
  }

  TEST_CASE("a leave ends by its deadline though what was offered is not taken") {
    cluster c(2, ground::simulated);
    const auto large = pattern(100'000);
    send_op s;
    send(c, s, 0, 1, large);
    const auto before = c.sim().now();
    leave(c, 0, 2s);
    REQUIRE(c.until([&] { return c[0].gone.runs == 1; }));
    CHECK(c.sim().now() - before <= 2100ms);
    CHECK(s.failed(cause::closed));
    REQUIRE(c.until([&] { return !c[1].events.left.empty(); }));
    CHECK(c[1].events.quiet());
  }

  TEST_CASE("a leave ends by its deadline though the peer is stopped") {
    cluster c(2, ground::simulated);
    const auto large = pattern(4U << 20);
    std::vector<std::uint8_t> got(large.size());
    send_op s;
    receive_op r;
    send(c, s, 0, 1, large);
    receive(c, r, 1, 0, got);
    REQUIRE(c.until([&] { return r.bytes_moved > 0; }));
    c.sim().stop(*c[1].process);
    leave(c, 0, 2s);
    REQUIRE(c.until([&] { return c[0].gone.runs == 1; }));
    CHECK(s.failed(cause::closed));
    c.sim().resume(*c[1].process);
    c.settle();
  }

  TEST_CASE(
      "a peer that dies half way is reported, ends no operation and touches no buffer") {
    for (const ground g : stream_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(3, g);
      const auto large = pattern(8U << 20);
      std::vector<std::uint8_t> got(large.size());
      std::uint64_t word = 1;
      send_op s;
      receive_op r;
      receive_op other;
      send(c, s, 0, 1, large);
      receive(c, r, 1, 0, got);
      receive(c, other, 1, 2, std::span(&word, 1));
      REQUIRE(c.until([&] { return r.bytes_moved > 0; }));
      c.quiesce(0);
      REQUIRE(c.until([&] { return !c[1].events.ended.empty(); }));
      CHECK(c[1].events.ended == std::vector<rank_t>{0});
      CHECK(r.ends == 0);
      CHECK(other.ends == 0);
      CHECK(s.ends == 0);
      c.quiesce(1);
      REQUIRE(c.until([&] { return c[1].quiet.runs == 1; }));
      std::fill(got.begin(), got.end(), 0x33);
      c.settle();
      CHECK(all_are(got, 0x33));
      CHECK(r.ends == 0);
    }
  }

  TEST_CASE(
      "law 11: what became of a list after its sender's world ended accuses no member") {
    // Where it may not be read it comes in pieces that the sender gathers.
    if (testing::reading_is_refused_here()) return;
    cluster c(2, ground::shared);
    constexpr std::size_t pieces = 4'000;
    constexpr std::size_t each = 999;
    const auto sent = pattern(pieces * each);
    std::vector<const_buffer_view> list;
    for (std::size_t i = 0; i < pieces; ++i) {
      list.emplace_back(sent.data() + i * each, each, dtype::uint8);
    }
    std::vector<std::uint8_t> got(sent.size());
    send_op s;
    receive_op r;
    receive(c, r, 1, 0, got);
    send(c, s, 0, 1, list);
    REQUIRE(c.until([&] { return r.bytes_moved > 0; }));
    REQUIRE_FALSE(r.ended());
    // Member 1 is stopped meanwhile.
    c.quiesce(0);
    while (c[0].quiet.runs == 0 && c[0].home->turn()) continue;
    REQUIRE(c[0].quiet.runs == 1);
    std::memset(static_cast<void*>(list.data()), 0xff, list.size() * sizeof list.front());
    c.settle();
    CHECK(c[1].events.broken_by.empty());
    CHECK_FALSE(r.done());
  }

  TEST_CASE("quiescing inside of a callback is safe") {
    for (const ground g : stream_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(3, g);
      c[1].events.on_trouble = [&] { c.quiesce(1); };
      std::uint64_t word = 1;
      receive_op r;
      receive(c, r, 1, no_rank, std::span(&word, 1));
      c.quiesce(0);
      REQUIRE(c.until([&] { return c[1].quiet.runs == 1; }));
      CHECK(c[1].events.ended.front() == 0);
      CHECK(r.ends == 0);
    }
  }

  TEST_CASE("a world of one is left at once") {
    cluster c(1);
    barrier_op b;
    c.at(0).start(b);
    CHECK(b.done());
    leave(c, 0);
    CHECK(c.until([&] { return c[0].gone.runs == 1; }));
  }
}
