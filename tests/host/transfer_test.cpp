#include <deque>

#include "cluster.hpp"

using namespace manyworlds;
using namespace manyworlds::host_tests;

TEST_SUITE("host transfer") {
  TEST_CASE(
      "messages of every size arrive whole, and both sides agree on what they were") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g);
      const std::size_t top = g == ground::simulated ? 3'000'000 : 64U << 20;
      for (const std::size_t bytes :
           {std::size_t{0}, std::size_t{1}, std::size_t{8}, std::size_t{4095},
            std::size_t{64 * 1024}, std::size_t{64 * 1024 + 1}, std::size_t{262'144},
            std::size_t{1'000'003}, top}) {
        CAPTURE(bytes);
        const auto sent = pattern(bytes, static_cast<unsigned>(bytes));
        std::vector<std::uint8_t> got(bytes);
        send_op s;
        receive_op r;
        send(c, s, 0, 1, sent, 7, 42);
        receive(c, r, 1, 0, got, 7);
        REQUIRE(c.until([&] { return s.ended() && r.ended(); }));
        CHECK(s.done());
        CHECK(r.done());
        CHECK(got == sent);
        CHECK(r.info.bytes == bytes);
        CHECK(r.info.user.value() == 42);
        CHECK(r.info.source == 0);
        CHECK(r.info.on == lane(7));
      }
      CHECK(c[0].events.quiet());
      CHECK(c[1].events.quiet());
    }
  }

  TEST_CASE("lists cut differently on both sides carry the same bytes") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g);
      for (const std::size_t bytes : {std::size_t{5'000}, std::size_t{700'001}}) {
        const auto sent = pattern(bytes, 3);
        std::vector<std::uint8_t> got(bytes);
        std::vector<const_buffer_view> pieces;
        std::vector<buffer_view> places;
        for (std::size_t at = 0, step = 1; at < bytes;
             at += step, step = step * 3 % 997 + 1) {
          step = std::min(step, bytes - at);
          pieces.emplace_back(sent.data() + at, step, dtype::uint8);
          if (at % 5 == 0) pieces.emplace_back();
        }
        for (std::size_t at = 0, step = 7; at < bytes;
             at += step, step = step * 5 % 4001 + 1) {
          step = std::min(step, bytes - at);
          places.emplace_back(got.data() + at, step, dtype::uint8);
        }
        carry(c, pieces, places);
        CHECK(got == sent);
      }
    }
  }

  TEST_CASE("ten thousand sends arrive in the order in which they were started") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g);
      constexpr std::size_t count = 10'000;
      std::vector<std::uint64_t> values(count);
      std::vector<std::uint64_t> got(count);
      std::deque<send_op> sends(count);
      std::deque<receive_op> receives(count);
      for (std::size_t i = 0; i < count; ++i) {
        values[i] = i;
        send(c, sends[i], 0, 1, std::span(&values[i], 1));
      }
      for (std::size_t i = 0; i < count; ++i)
        receive(c, receives[i], 1, 0, std::span(&got[i], 1));
      REQUIRE(c.until([&] { return receives.back().ended() && sends.back().ended(); }));
      CHECK(got == values);
      for (auto& r : receives) REQUIRE(r.done());
      for (auto& s : sends) REQUIRE(s.done());
    }
  }

  TEST_CASE("small and large messages of one lane keep their order") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g);
      const std::vector<std::size_t> sizes{8,      100'000, 1,       0, 40'000,
                                           40'000, 20'000,  300'000, 3};
      std::deque<std::vector<std::uint8_t>> sent;
      std::deque<std::vector<std::uint8_t>> got;
      std::deque<send_op> sends(sizes.size());
      std::deque<receive_op> receives(sizes.size());
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        sent.push_back(pattern(sizes[i], static_cast<unsigned>(i)));
        got.emplace_back(sizes[i]);
        send(c, sends[i], 0, 1, sent[i]);
        receive(c, receives[i], 1, 0, got[i]);
      }
      REQUIRE(c.until([&] {
        return receives.back().ended() &&
               std::all_of(sends.begin(), sends.end(), [](auto& s) { return s.ended(); });
      }));
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        CHECK(receives[i].done());
        CHECK(sends[i].done());
        CHECK(got[i] == sent[i]);
      }
    }
  }

  TEST_CASE("what the window takes is sent without a receive, however much it is") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      host_backend_options options;
      options.lane_window = 1U << 20;
      cluster c(2, g, options);
      const auto sent = pattern(is_shared(g) ? 8'000 : 60'000);
      std::deque<send_op> sends(12);
      for (send_op& s : sends) send(c, s, 0, 1, sent);
      REQUIRE(c.until([&] {
        return std::all_of(sends.begin(), sends.end(), [](auto& s) { return s.ended(); });
      }));
      for (send_op& s : sends) CHECK(s.done());
      for (std::size_t i = 0; i < sends.size(); ++i)
        CHECK(next_received(c, sent.size()) == sent);
    }
  }

  TEST_CASE("a large message does not delay eight bytes on another lane") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g);
      const auto large = pattern(g == ground::simulated ? 4U << 20 : 64U << 20);
      std::vector<std::uint8_t> got(large.size());
      send_op s;
      receive_op r;
      send(c, s, 0, 1, large, 1);
      receive(c, r, 1, 0, got, 1);
      REQUIRE(c.until([&] { return r.bytes_moved > 0; }));
      std::uint64_t word = 77;
      std::uint64_t word_got = 0;
      send_op small;
      receive_op small_receive;
      send(c, small, 0, 1, std::span(&word, 1), 2);
      receive(c, small_receive, 1, 0, std::span(&word_got, 1), 2);
      REQUIRE(c.until([&] { return small_receive.ended(); }));
      CHECK(word_got == 77);
      CHECK_FALSE(r.ended());
      REQUIRE(c.until([&] { return r.ended() && s.ended(); }));
      CHECK(got == large);
    }
  }

  TEST_CASE(
      "a full window suspends its lane, not another, and resumes when it is received") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      host_backend_options options;
      const auto block = pattern(is_shared(g) ? 8 * 1024 : 16 * 1024);
      options.eager_limit = 2 * block.size();
      options.lane_window = 4 * block.size();
      cluster c(2, g, options);
      std::deque<send_op> sends(12);
      for (auto& s : sends) send(c, s, 0, 1, block, 5);
      c.settle();
      const auto accepted = std::count_if(sends.begin(), sends.end(),
                                          [](const send_op& s) { return s.done(); });
      CHECK(accepted == 3);
      CHECK(c.at(0).undelivered().size() == 1);
      CHECK(c.at(0).undelivered()[0].messages == 3);
      CHECK(c.at(0).undelivered()[0].bytes == 3 * block.size());
      std::uint64_t word = 1;
      std::uint64_t word_got = 0;
      send_op other;
      receive_op other_receive;
      send(c, other, 0, 1, std::span(&word, 1), 6);
      receive(c, other_receive, 1, 0, std::span(&word_got, 1), 6);
      REQUIRE(c.until([&] { return other_receive.done(); }));

      for (std::size_t i = 0; i < sends.size(); ++i)
        CHECK(next_received(c, block.size(), 5) == block);
      CHECK(c.until([&] { return sends.back().done(); }));
      CHECK(c.until([&] { return c.at(0).undelivered().empty(); }));
    }
  }

  TEST_CASE("a delivered send ends when the receive took it, not before") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g);
      std::uint64_t word = 5;
      std::uint64_t got = 0;
      send_op s;
      s.delivered = true;
      send(c, s, 0, 1, std::span(&word, 1));
      c.settle();
      CHECK_FALSE(s.ended());
      receive_op r;
      receive(c, r, 1, 0, std::span(&got, 1));
      REQUIRE(c.until([&] { return s.ended(); }));
      CHECK(s.done());
      CHECK(r.done());
    }
  }

  TEST_CASE("an accepted send has left, also when its thread never turns again") {
    for (const ground g : all_grounds()) {
      if (g == ground::simulated) continue;
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g);
      c.settle();
      std::uint64_t word = 42;
      std::uint64_t got = 0;
      send_op s;
      receive_op r;
      receive(c, r, 1, 0, std::span(&got, 1));
      send(c, s, 0, 1, std::span(&word, 1));
      REQUIRE(s.done());
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
      while (!r.ended() && std::chrono::steady_clock::now() < end) c[1].home->turn();
      CHECK(r.done());
      CHECK(got == 42);
    }
  }
}
