#include <chrono>
#include <deque>

#include "cluster.hpp"

using namespace manyworlds;
using namespace manyworlds::host_tests;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t large_bytes = 8U << 20;

// As the world does: gives up, and waits for the end if it is not at once.
void give_up(cluster& c, rank_t at, test_operation& op) {
  if (c.at(at).withdraw(op)) {
    CHECK(op.ends == 0);
    ++op.ends;
    op.how = operation_end::withdrawn;
  }
}

}  // namespace

TEST_SUITE("host giving up") {
  TEST_CASE("a waiting receive is withdrawn at once, and the next one gets the message") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g);
      std::uint64_t word = 9;
      std::uint64_t canary = 0x5555;
      std::uint64_t got = 0;
      receive_op first;
      receive_op second;
      receive(c, first, 1, 0, std::span(&canary, 1));
      CHECK(c.at(1).withdraw(first));
      send_op s;
      send(c, s, 0, 1, std::span(&word, 1));
      receive(c, second, 1, 0, std::span(&got, 1));
      REQUIRE(c.until([&] { return second.ended(); }));
      CHECK(got == 9);
      CHECK(canary == 0x5555);
      CHECK(first.ends == 0);
    }
  }

  TEST_CASE(
      "a receive given up at any stage leaves its buffer alone and the message whole") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      for (std::size_t stage = 0; stage < 12; ++stage) {
        CAPTURE(stage);
        cluster c(2, g, {}, stage + 1);
        const auto sent = pattern(large_bytes);
        std::vector<std::uint8_t> lost(sent.size());
        std::vector<std::uint8_t> got(sent.size());
        send_op s;
        receive_op r;
        receive(c, r, 1, 0, lost, 3);
        send(c, s, 0, 1, sent, 3);
        const std::size_t begun = stage * stage * large_bytes / 128;
        REQUIRE(c.until([&] { return r.bytes_moved >= begun || r.ended(); }));
        if (stage % 3 == 0) c.turn();
        give_up(c, 1, r);
        REQUIRE(c.until([&] { return r.ended(); }));
        if (r.done()) {
          CHECK(lost == sent);
          continue;
        }
        CHECK(r.withdrawn());
        std::fill(lost.begin(), lost.end(), 0xA5);
        receive_op again;
        receive(c, again, 1, 0, got, 3);
        REQUIRE(c.until([&] { return again.ended() && s.ended(); }));
        CHECK(again.done());
        CHECK(s.done());
        CHECK(got == sent);
        CHECK(all_are(lost, 0xA5));
        CHECK(c[0].events.quiet());
        CHECK(c[1].events.quiet());
      }
    }
  }

  TEST_CASE("a send given up before a receive pulls it never was") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g);
      const auto sent = pattern(100'000);
      send_op s;
      send(c, s, 0, 1, sent);
      c.settle();
      CHECK(c.at(0).withdraw(s));
      std::uint64_t word = 4;
      std::uint64_t got = 0;
      send_op next;
      send(c, next, 0, 1, std::span(&word, 1));
      c.settle();
      receive_op r;
      receive(c, r, 1, 0, std::span(&got, 1));
      REQUIRE(c.until([&] { return r.ended(); }));
      CHECK(r.done());
      CHECK(got == 4);
    }
  }

  TEST_CASE("a send given up while its pull is on the way leaves the receive waiting") {
    for (const ground g : all_grounds()) {
      // A payload that can be read is read at once.
      if (is_shared(g) && g != ground::asking) continue;
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g);
      const auto sent = pattern(100'000);
      const auto second = pattern(100'000, 2);
      std::vector<std::uint8_t> got(sent.size());
      send_op s;
      send(c, s, 0, 1, sent);
      c.settle();
      receive_op r;
      receive(c, r, 1, 0, got);
      CHECK(c.at(0).withdraw(s));
      c.settle();
      CHECK_FALSE(r.ended());
      send_op next;
      send(c, next, 0, 1, second);
      REQUIRE(c.until([&] { return r.ended() && next.ended(); }));
      CHECK(r.done());
      CHECK(got == second);
      CHECK(c[0].events.quiet());
    }
  }

  TEST_CASE("a send given up at any stage is received whole or not at all") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      for (std::size_t stage = 0; stage < 12; ++stage) {
        CAPTURE(stage);
        cluster c(2, g, {}, stage + 1);
        auto sent = pattern(large_bytes);
        const auto copy = sent;
        std::vector<std::uint8_t> got(sent.size());
        send_op s;
        receive_op r;
        receive(c, r, 1, 0, got, 3);
        send(c, s, 0, 1, sent, 3);
        const std::size_t begun =
            std::min(stage * stage * large_bytes / 100, large_bytes);
        REQUIRE(c.until([&] { return s.bytes_moved >= begun || s.ended(); }));
        if (stage % 3 == 0) c.turn();
        give_up(c, 0, s);
        REQUIRE(c.until([&] { return s.ended(); }));
        std::fill(sent.begin(), sent.end(),
                  0x11);  // ours again: nothing reads it now

        std::uint64_t word = 6;
        std::uint64_t word_got = 0;
        send_op next;
        receive_op next_receive;
        send(c, next, 0, 1, std::span(&word, 1), 4);
        receive(c, next_receive, 1, 0, std::span(&word_got, 1), 4);
        REQUIRE(c.until([&] { return next_receive.ended(); }));
        CHECK(word_got == 6);
        if (s.done()) {
          REQUIRE(c.until([&] { return r.ended(); }));
          CHECK(r.done());
          CHECK(got == copy);
        } else {
          CHECK(s.withdrawn());
          // Begun: told. Not begun: it waits for the next message as if there had been
          // none.
          if (!r.ended()) {
            CHECK(r.bytes_moved == 0);
            CHECK(c.at(1).withdraw(r));
          } else {
            CHECK(r.failed(cause::cancelled_by_peer));
          }
        }
        CHECK(c[0].events.quiet());
        CHECK(c[1].events.quiet());
      }
    }
  }

  TEST_CASE(
      "a receive of a member that leaves ends as closed, also if its send is given up "
      "meanwhile") {
    int closed = 0;
    for (std::uint64_t seed = 3600; seed < 6000; seed += 2) {
      CAPTURE(seed);
      cluster c(2, ground::simulated, {}, seed);
      const auto sent = pattern(600'000);
      std::vector<std::uint8_t> got(sent.size());
      send_op s;
      receive_op r;
      receive(c, r, 1, 0, got);
      send(c, s, 0, 1, sent);
      for (std::uint64_t i = 0; i < seed % 200; ++i) (void)c.sim().step();
      if (s.ended() || r.ended()) continue;
      give_up(c, 0, s);
      // The end of the slice and the withdrawal come in one piece behind it.
      for (std::uint64_t i = 0; i < seed / 200; ++i) (void)c.sim().step();
      c.at(1).leave(c[1].gone, c[1].home->now() + 5s);
      c.at(0).leave(c[0].gone, c[0].home->now() + 5s);
      REQUIRE(c.until([&] { return c[0].gone.runs + c[1].gone.runs == 2; }));
      REQUIRE(r.ended());
      CHECK_FALSE(r.withdrawn());
      closed += r.failed(cause::closed);
    }
    CHECK(closed > 0);
  }

  TEST_CASE("a send without credit is withdrawn and those behind it go on") {
    host_backend_options options;
    options.eager_limit = 32 * 1024;
    options.lane_window = 64 * 1024;
    cluster c(2, ground::epoll, options);
    const auto block = pattern(30'000);
    std::deque<send_op> sends(4);
    for (auto& s : sends) send(c, s, 0, 1, block);
    CHECK(sends[1].done());
    CHECK_FALSE(sends[2].ended());
    CHECK(c.at(0).withdraw(sends[2]));
    std::vector<std::uint8_t> got(block.size());
    for (int i = 0; i < 3; ++i) {
      receive_op r;
      receive(c, r, 1, 0, got);
      REQUIRE(c.until([&] { return r.ended(); }));
      CHECK(r.done());
    }
    CHECK(c.until([&] { return sends[3].done(); }));
    CHECK(sends[2].ends == 0);
  }

  TEST_CASE("a delivered send given up is settled with the peer: taken, or gone") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g);
      std::uint64_t word = 5;
      std::uint64_t got = 0;
      send_op s;
      s.delivered = true;
      send(c, s, 0, 1, std::span(&word, 1));
      c.settle();
      CHECK_FALSE(c.at(0).withdraw(s));
      REQUIRE(c.until([&] { return s.ended(); }));
      CHECK(s.withdrawn());
      receive_op r;
      receive(c, r, 1, 0, std::span(&got, 1));
      c.settle();
      CHECK_FALSE(r.ended());

      send_op taken;
      taken.delivered = true;
      send(c, taken, 0, 1, std::span(&word, 1));
      CHECK_FALSE(c.at(0).withdraw(taken));
      REQUIRE(c.until([&] { return taken.ended(); }));
      REQUIRE(c.until([&] { return r.ended() || taken.withdrawn(); }));
      CHECK(taken.done() == r.ended());
      if (!r.ended()) c.at(1).withdraw(r);
    }
  }

  TEST_CASE("who gives up late ends after the settle limit though the peer is stopped") {
    cluster c(2, ground::simulated);
    std::uint64_t word = 5;
    send_op s;
    s.delivered = true;
    send(c, s, 0, 1, std::span(&word, 1));
    c.settle();
    c.sim().stop(*c[1].process);
    const auto before = c.sim().now();
    CHECK_FALSE(c.at(0).withdraw(s));
    REQUIRE(c.until([&] { return s.ended(); }));
    CHECK(s.withdrawn());
    CHECK(c.sim().now() - before <= std::chrono::milliseconds(1500));
    c.sim().resume(*c[1].process);
    c.settle();
    CHECK(c[0].events.quiet());
  }

  TEST_CASE("a begun transfer without a byte breaks the world at its limit") {
    cluster c(2, ground::simulated);
    const auto sent = pattern(4U << 20);
    std::vector<std::uint8_t> got(sent.size());
    send_op s;
    receive_op r;
    send(c, s, 0, 1, sent);
    receive(c, r, 1, 0, got);
    REQUIRE(c.until([&] { return r.bytes_moved > 0; }));
    c.sim().lose_link(*c[0].process, *c[1].process);
    const auto before = c.sim().now();
    REQUIRE(c.until([&] { return !c[1].events.broken_by.empty(); }));
    CHECK(c[1].events.cause == cause::stalled);
    CHECK(c.sim().now() - before >= std::chrono::seconds(9));
    CHECK(c.sim().now() - before <= std::chrono::seconds(11));
    CHECK_FALSE(r.ended());
  }
}
