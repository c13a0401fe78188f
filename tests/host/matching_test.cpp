#include <deque>

#include "cluster.hpp"

using namespace manyworlds;
using namespace manyworlds::host_tests;

namespace {

struct words {
  explicit words(std::size_t count) : values(count), got(count) {
    for (std::size_t i = 0; i < count; ++i) values[i] = 100 + i;
  }
  std::vector<std::uint64_t> values;
  std::vector<std::uint64_t> got;
};

struct head_op : receive_op {
  explicit head_op(void* into, std::size_t bytes) {
    head = into;
    head_bytes = bytes;
    takes_fresh_lanes = true;
  }
};

void send_message(cluster& c, send_op& s, rank_t from, rank_t to_rank,
                  std::uint64_t& head, std::span<std::uint8_t> payload,
                  std::uint64_t on) {
  s.head = &head;
  s.head_bytes = sizeof head;
  send(c, s, from, to_rank, payload, on);
}

void post(cluster& c, test_operation& op, rank_t at, rank_t peer) {
  op.peer = peer;
  c.at(at).start(op);
}

}  // namespace

TEST_SUITE("host matching") {
  TEST_CASE("a receive from any takes the members that have sent in turns") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(4, g);
      words w(12);
      std::deque<send_op> sends(12);
      for (std::size_t i = 0; i < 12; ++i) {
        send(c, sends[i], static_cast<rank_t>(1 + i / 4), 0, std::span(&w.values[i], 1));
      }
      c.settle();
      std::vector<int> seen(4);
      for (std::size_t i = 0; i < 12; ++i) {
        receive_op r;
        receive(c, r, 0, no_rank, std::span(&w.got[i], 1));
        REQUIRE(r.done());
        ++seen[static_cast<std::size_t>(r.info.source)];
        if (i % 3 == 2) CHECK(seen[1] + seen[2] + seen[3] == 3 * seen[1]);
      }
    }
  }

  TEST_CASE("receives from any and from one member are served in the order of posting") {
    cluster c(3);
    words w(3);
    std::deque<receive_op> r(3);
    receive(c, r[0], 0, 1, std::span(&w.got[0], 1));
    receive(c, r[1], 0, no_rank, std::span(&w.got[1], 1));
    receive(c, r[2], 0, 1, std::span(&w.got[2], 1));
    std::deque<send_op> s(3);
    for (std::size_t i = 0; i < 3; ++i) send(c, s[i], 1, 0, std::span(&w.values[i], 1));
    REQUIRE(c.until([&] { return r[2].ended(); }));
    CHECK(w.got == w.values);
  }

  TEST_CASE(
      "a message of another size stays at the head, and the failure names both sizes") {
    for (const std::size_t bytes : {std::size_t{16}, std::size_t{100'000}}) {
      CAPTURE(bytes);
      cluster c(2);
      const auto sent = pattern(bytes);
      std::vector<std::uint8_t> small(10);
      std::vector<std::uint8_t> got(bytes);
      send_op s;
      send(c, s, 0, 1, sent);
      receive_op wrong;
      receive(c, wrong, 1, 0, small);
      REQUIRE(c.until([&] { return wrong.ended(); }));
      CHECK(wrong.failed(cause::size_mismatch));
      CHECK(wrong.failure_detail.find("10 bytes") != std::string::npos);
      CHECK(wrong.failure_detail.find(std::to_string(bytes)) != std::string::npos);
      receive_op right;
      receive(c, right, 1, 0, got);
      REQUIRE(c.until([&] { return right.ended(); }));
      CHECK(right.done());
      CHECK(got == sent);
    }
  }

  TEST_CASE("a head comes first, its payload is the next plain receive's") {
    for (const std::size_t bytes : {std::size_t{100}, std::size_t{100'000}}) {
      CAPTURE(bytes);
      cluster c(2);
      std::uint64_t head = 11;
      std::uint64_t head_got = 0;
      auto payload = pattern(bytes);
      std::vector<std::uint8_t> got(bytes);
      send_op s;
      send_message(c, s, 0, 1, head, payload, 77);
      head_op h(&head_got, sizeof head_got);
      post(c, h, 1, 0);
      REQUIRE(c.until([&] { return h.ended(); }));
      CHECK(h.done());
      CHECK(head_got == 11);
      CHECK(h.info.on == lane(77));
      CHECK(h.info.bytes == bytes);
      CHECK(h.info.head_bytes == sizeof head);
      receive_op r;
      receive(c, r, 1, 0, got, 77);
      REQUIRE(c.until([&] { return r.ended() && s.ended(); }));
      CHECK(r.done());
      CHECK(got == payload);
    }
  }

  TEST_CASE("a plain receive of a message with a head gets both as its bytes") {
    for (const std::size_t bytes : {std::size_t{100}, std::size_t{100'000}}) {
      cluster c(2);
      std::uint64_t head = 11;
      auto payload = pattern(bytes);
      std::vector<std::uint8_t> got(bytes + sizeof head);
      send_op s;
      send_message(c, s, 0, 1, head, payload, 0);
      receive_op r;
      receive(c, r, 1, 0, got);
      REQUIRE(c.until([&] { return r.ended() && s.ended(); }));
      CHECK(r.done());
      CHECK(std::memcmp(got.data(), &head, sizeof head) == 0);
      CHECK(std::equal(payload.begin(), payload.end(), got.begin() + sizeof head));
    }
  }

  TEST_CASE("a head of another size is an error that leaves the message") {
    cluster c(2);
    std::uint64_t head = 11;
    std::uint32_t short_head = 0;
    std::uint64_t head_got = 0;
    send_op s;
    send_message(c, s, 0, 1, head, {}, 0);
    head_op wrong(&short_head, sizeof short_head);
    post(c, wrong, 1, 0);
    REQUIRE(c.until([&] { return wrong.ended(); }));
    CHECK(wrong.failed(cause::size_mismatch));
    head_op right(&head_got, sizeof head_got);
    post(c, right, 1, 0);
    CHECK(right.done());
    CHECK(head_got == 11);
  }

  TEST_CASE(
      "the first message of a new lane is taken without naming the lane, the second is "
      "not") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g);
      std::uint64_t head = 1;
      std::deque<send_op> s(4);
      send_message(c, s[0], 0, 1, head, {}, 50);
      send_message(c, s[1], 0, 1, head, {}, 50);
      send_message(c, s[2], 0, 1, head, {}, 51);
      c.settle();
      std::uint64_t got = 0;
      std::deque<head_op> h;
      for (int i = 0; i < 3; ++i) post(c, h.emplace_back(&got, sizeof got), 1, 0);
      CHECK(h[0].done());
      CHECK(h[0].info.on == lane(50));
      CHECK(h[1].done());
      CHECK(h[1].info.on == lane(51));
      CHECK_FALSE(h[2].ended());
      receive_op rest;
      receive(c, rest, 1, 0, std::span(&got, 1), 50);
      CHECK(rest.done());
      send_message(c, s[3], 0, 1, head, {}, 0);
      REQUIRE(c.until([&] { return h[2].ended(); }));
      CHECK(h[2].info.on == lane(0));
    }
  }

  TEST_CASE("a lane with a posted receive is fresh to no other receive") {
    cluster c(2);
    std::uint64_t head = 1;
    std::uint64_t got = 0;
    std::uint64_t got_head = 0;
    head_op h(&got_head, sizeof got_head);
    post(c, h, 1, 0);
    receive_op r;
    receive(c, r, 1, 0, std::span(&got, 1), 9);
    send_op s;
    send_message(c, s, 0, 1, head, {}, 9);
    REQUIRE(c.until([&] { return r.ended(); }));
    CHECK(r.done());
    CHECK_FALSE(h.ended());
    CHECK(c.at(1).withdraw(h));
  }

  TEST_CASE("an arrival tells of the message that no receive before it takes") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g);
      const auto large = pattern(90'000);
      std::vector<std::uint8_t> got(large.size());
      std::vector<std::uint8_t> small(20, 1);
      receive_op r;
      receive(c, r, 1, 0, got);
      arrival_op a;
      post(c, a, 1, no_rank);
      send_op first;
      send_op second;
      send(c, first, 0, 1, large);
      send(c, second, 0, 1, small, 0, 8);
      REQUIRE(c.until([&] { return a.ended(); }));
      CHECK(r.done());
      CHECK(a.done());
      CHECK(a.info.bytes == 20);
      CHECK(a.info.user.value() == 8);
      CHECK(a.info.count == 20);
      arrival_op again;
      post(c, again, 1, 0);
      CHECK(again.done());
      receive_op taken;
      std::vector<std::uint8_t> small_got(20);
      receive(c, taken, 1, 0, small_got);
      CHECK(taken.done());
      CHECK(small_got == small);
    }
  }

  TEST_CASE(
      "a payload given up after its head was taken fails the receive that waits for it") {
    cluster c(2);
    std::uint64_t head = 1;
    std::uint64_t got_head = 0;
    auto payload = pattern(100'000);
    std::vector<std::uint8_t> got(payload.size());
    send_op s;
    send_message(c, s, 0, 1, head, payload, 3);
    head_op h(&got_head, sizeof got_head);
    post(c, h, 1, 0);
    REQUIRE(c.until([&] { return h.ended(); }));
    CHECK(c.at(0).withdraw(s));
    send_op next;
    send(c, next, 0, 1, payload, 3);
    c.settle();
    receive_op r;
    receive(c, r, 1, 0, got, 3);
    CHECK(r.failed(cause::cancelled_by_peer));
    receive_op following;
    receive(c, following, 1, 0, got, 3);
    REQUIRE(c.until([&] { return following.ended(); }));
    CHECK(following.done());
  }

  TEST_CASE("lanes that come and go leave nothing behind") {
    cluster c(2);
    std::uint64_t word = 1;
    std::uint64_t got = 0;
    for (std::uint64_t lane = 1; lane < 3000; ++lane) {
      send_op s;
      receive_op r;
      send(c, s, 0, 1, std::span(&word, 1), lane);
      receive(c, r, 1, 0, std::span(&got, 1), lane);
      REQUIRE(c.until([&] { return r.ended() && s.ended(); }));
    }
    REQUIRE(c.until([&] { return c.at(0).undelivered().empty(); }));
    CHECK(c.at(0).lanes().size() < 100);
    CHECK(c.at(1).lanes().size() < 100);
  }
}
