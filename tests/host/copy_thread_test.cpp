// A second thread reads part of what is large: nothing of it is seen from outside.
#include <filesystem>
#include <fstream>

#include "cluster.hpp"

using namespace manyworlds;
using namespace manyworlds::host_tests;

namespace {

constexpr std::size_t size = std::size_t{48} << 20;

/// Its thread is started with its first slice, without which no message is whole.
bool has_copy_thread() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    if (std::ifstream(task.path() / "comm") >> name && name == cluster::copy_thread_name)
      return true;
  }
  return false;
}
void check_copy_thread(cluster& c) {
  const bool needed =
      c.link(1, 0).copy_thread()->cpus() > 1 && !testing::reading_is_refused_here();
  CHECK(has_copy_thread() == needed);
}

/// A message of ones on its way, of which some have come.
struct begun {
  begun() {
    receive(c, r, 1, 0, got);
    send(c, s, 0, 1, sent);
    REQUIRE(c.until([&] { return r.bytes_moved > 0; }));
    check_copy_thread(c);
  }
  /// The receive's memory is ours again.
  void check_untouched() {
    std::fill(got.begin(), got.end(), std::uint8_t{9});
    // Long enough for a slice that is still being read.
    for (int turn = 0; turn < 2000; ++turn) c.turn();
    CHECK(all_are(got, 9));
  }

  cluster c{2, ground::shared};
  std::vector<std::uint8_t> sent = std::vector<std::uint8_t>(size, 1);
  std::vector<std::uint8_t> got = std::vector<std::uint8_t>(size, 0);
  send_op s;
  receive_op r;
};

}  // namespace

TEST_SUITE("host copy thread") {
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
      carry(c, views, places);
      CHECK(got == sent);
      check_copy_thread(c);
    }
  }

  TEST_CASE(
      "messages that come at once are each whole, whichever thread read which part") {
    cluster c(2, ground::shared);
    constexpr std::size_t each = std::size_t{9} << 20;
    constexpr std::size_t count = 4;
    std::vector<std::vector<std::uint8_t>> sent(count);
    std::vector<std::vector<std::uint8_t>> got(count);
    std::array<send_op, count> s;
    std::array<receive_op, count> r;
    for (std::size_t i = 0; i < count; ++i) {
      sent[i] = pattern(each);
      std::rotate(sent[i].begin(), sent[i].begin() + static_cast<std::ptrdiff_t>(i + 1),
                  sent[i].end());
      got[i].resize(each);
      receive(c, r[i], 1, 0, got[i]);
      send(c, s[i], 0, 1, sent[i]);
    }
    REQUIRE(c.until([&] {
      return std::all_of(s.begin(), s.end(),
                         [](const send_op& op) { return op.ended(); }) &&
             std::all_of(r.begin(), r.end(),
                         [](const receive_op& op) { return op.ended(); });
    }));
    for (std::size_t i = 0; i < count; ++i) {
      CAPTURE(i);
      CHECK(got[i] == sent[i]);
    }
    check_copy_thread(c);
  }

  TEST_CASE("of members that receive at once it needs two CPUs each") {
    cluster c(2, ground::shared);
    const auto sent = pattern(size);
    std::vector<std::uint8_t> got(size);
    const int cpus = c.link(1, 0).copy_thread()->cpus();
    for (const rank_t receivers : {cpus / 2 + 1, 1}) {
      CAPTURE(receivers);
      send_op s;
      receive_op r;
      r.receivers = receivers;
      receive(c, r, 1, 0, got);
      send(c, s, 0, 1, sent);
      REQUIRE(c.until([&] { return s.ended() && r.ended(); }));
      CHECK(got == sent);
      const bool has_room = cpus >= 2 * receivers;
      CHECK(has_copy_thread() == (has_room && !testing::reading_is_refused_here()));
    }
  }

  TEST_CASE("law 4: a receive that is given up has its memory back, untouched after") {
    for (int round = 0; round < 20; ++round) {
      begun m;
      if (!m.r.ended() && m.c.at(1).withdraw(m.r)) m.r.end(operation_end::withdrawn);
      REQUIRE(m.r.ended());
      m.check_untouched();
      if (m.r.done()) continue;
      CHECK(all_are(next_received(m.c, size), 1));
      REQUIRE(m.c.until([&] { return m.s.ended(); }));
      CHECK(m.s.done());
    }
  }

  TEST_CASE(
      "law 4: a world that breaks half way gives all memory back, untouched after") {
    for (int round = 0; round < 20; ++round) {
      begun m;
      m.c.quiesce(1);
      REQUIRE(m.c.until([&] { return m.c[1].quiet.runs == 1; }));
      m.check_untouched();
    }
  }
}
