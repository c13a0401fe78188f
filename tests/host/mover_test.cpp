// A second thread reads part of what is large: nothing of it is seen from outside.
#include "cluster.hpp"

using namespace manyworlds;
using namespace manyworlds::host_tests;

namespace {

constexpr std::size_t size = std::size_t{48} << 20;

bool all_are(const std::vector<std::uint8_t>& memory, std::uint8_t what) {
  return std::all_of(memory.begin(), memory.end(),
                     [what](std::uint8_t b) { return b == what; });
}

}  // namespace

TEST_SUITE("host mover") {
  TEST_CASE("what two threads read is one message, in one piece or in many") {
    for (const std::size_t piece : {size, std::size_t{10'007}}) {
      CAPTURE(piece);
      cluster c(2, ground::shared);
      const auto sent = pattern(size);
      std::vector<std::uint8_t> got(size);
      std::vector<const_buffer_view> views;
      std::vector<buffer_view> places;
      for (std::size_t at = 0; at < size; at += piece) {
        views.emplace_back(std::span(sent).subspan(at, std::min(piece, size - at)));
      }
      for (std::size_t at = 0; at < size; at += piece / 2 + 1) {
        places.emplace_back(
            std::span(got).subspan(at, std::min(piece / 2 + 1, size - at)));
      }
      send_op s;
      receive_op r;
      receive(c, r, 1, 0, places);
      send(c, s, 0, 1, views);
      REQUIRE(c.until([&] { return s.ended() && r.ended(); }));
      CHECK(s.done());
      CHECK(r.done());
      CHECK(got == sent);
      CHECK(r.bytes_moved == size);
    }
  }

  TEST_CASE("law 4: a receive that is given up has its memory back, untouched after") {
    for (int round = 0; round < 20; ++round) {
      cluster c(2, ground::shared);
      std::vector<std::uint8_t> sent(size, 1);
      std::vector<std::uint8_t> got(size, 0);
      send_op s;
      receive_op r;
      receive(c, r, 1, 0, got);
      send(c, s, 0, 1, sent);
      REQUIRE(c.until([&] { return r.bytes_moved > 0; }));
      if (!r.ended() && c.at(1).withdraw(r)) r.end(operation_end::withdrawn);
      REQUIRE(r.ended());
      std::fill(got.begin(), got.end(), std::uint8_t{9});
      // Long enough for a slice that somebody still reads.
      for (int turn = 0; turn < 2000; ++turn) c.turn();
      CHECK(all_are(got, 9));
      if (r.done()) continue;
      receive_op next;
      receive(c, next, 1, 0, got);
      REQUIRE(c.until([&] { return next.ended() && s.ended(); }));
      CHECK(s.done());
      CHECK(all_are(got, 1));
    }
  }

  TEST_CASE(
      "law 4: a world that breaks half way gives all memory back, untouched after") {
    for (int round = 0; round < 20; ++round) {
      cluster c(2, ground::shared);
      std::vector<std::uint8_t> sent(size, 1);
      std::vector<std::uint8_t> got(size, 0);
      send_op s;
      receive_op r;
      receive(c, r, 1, 0, got);
      send(c, s, 0, 1, sent);
      REQUIRE(c.until([&] { return r.bytes_moved > 0; }));
      c.quiesce(1);
      REQUIRE(c.until([&] { return c[1].quiet.runs == 1; }));
      std::fill(got.begin(), got.end(), std::uint8_t{9});
      for (int turn = 0; turn < 2000; ++turn) c.turn();
      CHECK(all_are(got, 9));
    }
  }
}
