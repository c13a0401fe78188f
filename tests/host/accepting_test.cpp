// What may be sent before it is received, whatever carries it.
#include <deque>

#include "cluster.hpp"

using namespace manyworlds;
using namespace manyworlds::host_tests;

namespace {

// Below and above what goes through shared memory unasked.
constexpr std::size_t accepted_sizes[] = {8, 8'192, 8'193, 40'000, 65'536};

}  // namespace

TEST_SUITE("host accepting") {
  TEST_CASE("what is at most the eager limit is accepted before a receive") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      for (const std::size_t bytes : accepted_sizes) {
        CAPTURE(bytes);
        cluster c(2, g);
        auto sent = pattern(bytes);
        const auto expected = sent;
        std::vector<std::uint8_t> got(bytes);
        send_op s;
        receive_op r;
        send(c, s, 0, 1, sent, 3, 17);
        REQUIRE(c.until([&] { return s.ended(); }));
        CHECK(s.done());
        // The buffer is the sender's again (law 4).
        std::fill(sent.begin(), sent.end(), std::uint8_t{0xEE});
        receive(c, r, 1, 0, got, 3);
        REQUIRE(c.until([&] { return r.ended(); }));
        CHECK(r.done());
        CHECK(got == expected);
        CHECK(r.info.user.value() == 17);
        CHECK(c.at(0).undelivered().size() <= 1);
      }
    }
  }

  TEST_CASE("two members that both send and then receive do not wait for each other") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g);
      for (unsigned round = 0; round < 50; ++round) {
        const auto a = pattern(65'536, 2 * round);
        const auto b = pattern(65'536, 2 * round + 1);
        std::vector<std::uint8_t> at_a(a.size());
        std::vector<std::uint8_t> at_b(b.size());
        send_op from_a;
        send_op from_b;
        send(c, from_a, 0, 1, a);
        send(c, from_b, 1, 0, b);
        REQUIRE(c.until([&] { return from_a.ended() && from_b.ended(); }));
        receive_op to_a;
        receive_op to_b;
        receive(c, to_a, 0, 1, at_a);
        receive(c, to_b, 1, 0, at_b);
        REQUIRE(c.until([&] { return to_a.ended() && to_b.ended(); }));
        CHECK(at_a == b);
        CHECK(at_b == a);
      }
    }
  }

  TEST_CASE("an accepted message keeps its place, its head and its announcement") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g);
      const auto first = pattern(30'000, 1);
      const auto second = pattern(300'000, 2);
      const auto third = pattern(100, 3);
      std::uint64_t head = 99;
      send_op s[3];
      s[0].head = &head;
      s[0].head_bytes = sizeof head;
      send(c, s[0], 0, 1, first);
      send(c, s[1], 0, 1, second);
      send(c, s[2], 0, 1, third);
      REQUIRE(c.until([&] { return s[0].ended() && s[2].ended(); }));
      CHECK_FALSE(s[1].ended());

      arrival_op announced;
      announced.peer = 0;
      c.at(1).start(announced);
      REQUIRE(c.until([&] { return announced.ended(); }));
      CHECK(announced.info.head_bytes == sizeof head);
      CHECK(announced.info.bytes == first.size());

      std::uint64_t got_head = 0;
      receive_op head_only;
      head_only.peer = 0;
      head_only.head = &got_head;
      head_only.head_bytes = sizeof got_head;
      c.at(1).start(head_only);
      std::vector<std::uint8_t> got[3] = {std::vector<std::uint8_t>(first.size()),
                                          std::vector<std::uint8_t>(second.size()),
                                          std::vector<std::uint8_t>(third.size())};
      receive_op r[3];
      for (int i = 0; i < 3; ++i) receive(c, r[i], 1, 0, got[i]);
      REQUIRE(c.until([&] { return r[2].ended() && s[1].ended(); }));
      CHECK(got_head == 99);
      CHECK(got[0] == first);
      CHECK(got[1] == second);
      CHECK(got[2] == third);
    }
  }

  TEST_CASE("a delivered send is not ended by its message being kept") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g);
      const auto sent = pattern(40'000);
      std::vector<std::uint8_t> got(sent.size());
      send_op s;
      s.delivered = true;
      send(c, s, 0, 1, sent);
      c.settle();
      CHECK_FALSE(s.ended());
      receive_op r;
      receive(c, r, 1, 0, got);
      REQUIRE(c.until([&] { return s.ended() && r.ended(); }));
      CHECK(s.done());
      CHECK(got == sent);
    }
  }

  TEST_CASE("what was accepted and not delivered is counted, whatever carried it") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g);
      const auto sent = pattern(40'000);
      send_op s[2];
      for (send_op& each : s) send(c, each, 0, 1, sent, 4);
      REQUIRE(c.until([&] { return s[0].ended() && s[1].ended(); }));
      const auto before = c.at(0).undelivered();
      REQUIRE(before.size() == 1);
      CHECK(before[0].messages == 2);
      CHECK(before[0].bytes == 80'000);
      for (int i = 0; i < 2; ++i) CHECK(next_received(c, sent.size(), 4) == sent);
      CHECK(c.until([&] { return c.at(0).undelivered().empty(); }));
    }
  }

  TEST_CASE("a send given up while its message is being kept is whole or not at all") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      for (std::size_t stage = 0; stage < 10; ++stage) {
        CAPTURE(stage);
        cluster c(2, g, {}, stage + 1);
        auto sent = pattern(60'000);
        const auto expected = sent;
        const auto last = pattern(9, 7);
        send_op s;
        send_op after;
        send(c, s, 0, 1, sent);
        for (std::size_t turn = 0; turn < stage; ++turn) c.turn();
        const bool at_once = !s.ended() && c.at(0).withdraw(s);
        if (!at_once) REQUIRE(c.until([&] { return s.ended(); }));
        const bool was_sent = !at_once && s.done();
        std::fill(sent.begin(), sent.end(), std::uint8_t{0xEE});
        send(c, after, 0, 1, last);
        // Until it has heard of the withdrawal, the peer's next receive meets the
        // message.
        c.settle();
        if (was_sent) CHECK(next_received(c, expected.size()) == expected);
        CHECK(next_received(c, last.size()) == last);
        CHECK(c[0].events.quiet());
        CHECK(c[1].events.quiet());
      }
    }
  }

  TEST_CASE("a message is accepted also when the receive that had begun is given up") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      for (std::size_t stage = 0; stage < 8; ++stage) {
        CAPTURE(stage);
        cluster c(2, g, {}, stage + 1);
        const auto sent = pattern(60'000);
        std::vector<std::uint8_t> lost(sent.size(), 0x11);
        receive_op first;
        receive(c, first, 1, 0, lost);
        send_op s;
        send(c, s, 0, 1, sent);
        for (std::size_t turn = 0; turn < stage; ++turn) c.turn();
        const bool given_up = !first.ended() && c.at(1).withdraw(first);
        REQUIRE(c.until([&] { return s.ended(); }));
        CHECK(s.done());
        if (!given_up) continue;
        CHECK(next_received(c, sent.size()) == sent);
      }
    }
  }

  TEST_CASE(
      "both sides may give up a message at the same moment, and neither is blamed") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      for (std::size_t stage = 0; stage < 8; ++stage) {
        CAPTURE(stage);
        cluster c(2, g, {}, stage + 1);
        const auto sent = pattern(8U << 20);
        std::vector<std::uint8_t> lost(sent.size());
        receive_op r;
        receive(c, r, 1, 0, lost);
        send_op s;
        send(c, s, 0, 1, sent);
        for (std::size_t turn = 0; turn < stage; ++turn) c.turn();
        const bool sender_gave_up = !s.ended() && c.at(0).withdraw(s);
        // Its words are not read before the receive is given up too.
        if (!c[1].process) c[1].home->turn();
        const bool receiver_gave_up = !r.ended() && c.at(1).withdraw(r);
        if (!sender_gave_up) REQUIRE(c.until([&] { return s.ended(); }));
        if (!receiver_gave_up) c.settle();
        std::uint64_t word = 7;
        std::uint64_t got = 0;
        send_op after;
        receive_op taken;
        c.settle();
        send(c, after, 0, 1, std::span(&word, 1));
        receive(c, taken, 1, 0, std::span(&got, 1));
        REQUIRE(c.until([&] { return taken.ended() && after.ended(); }));
        CHECK(c[0].events.quiet());
        CHECK(c[1].events.quiet());
      }
    }
  }

  TEST_CASE("law 9: what is kept is bounded by the window, then sends wait") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g);
      const auto sent = pattern(65'536);
      std::deque<send_op> sends(16);
      for (send_op& s : sends) send(c, s, 0, 1, sent);
      c.settle();
      std::size_t accepted = 0;
      while (accepted < sends.size() && sends[accepted].ended()) ++accepted;
      CHECK(accepted >= 1);
      CHECK(accepted * sent.size() <= host_backend_options().lane_window);
      for (std::size_t i = 0; i < sends.size(); ++i)
        CHECK(next_received(c, sent.size()) == sent);
      CHECK(c.until([&] { return sends.back().ended(); }));
    }
  }
}
