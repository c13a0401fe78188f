// A payload of no bytes behind a head is something to receive.
#include <deque>

#include "cluster.hpp"

namespace manyworlds::host_tests::payloads {

namespace {

struct head_op : receive_op {
  explicit head_op(std::uint64_t& into) {
    head = &into;
    head_bytes = sizeof into;
    peer = 0;
  }
};

/// So little that 910 messages of 72 bytes fill it.
host_backend_options narrow_window() {
  host_backend_options options;
  options.eager_limit = 32 * 1024;
  options.lane_window = 64 * 1024;
  options.world_window = 64 * 1024;
  return options;
}

/// Both ends of a lane, heads that count up.
struct lane_of_heads {
  explicit lane_of_heads(ground g) : c(2, g, narrow_window()) {}

  /// `payload` null: a head alone.
  send_op& say(std::uint64_t head, const std::vector<std::uint8_t>* payload,
               bool delivered = false, std::uint64_t on = 0) {
    heads.push_back(head);
    send_op& s = sends.emplace_back();
    s.head = &heads.back();
    s.head_bytes = sizeof head;
    s.delivered = delivered;
    s.gives_payload = payload != nullptr;
    send(c, s, 0, 1, payload ? gather_list(*payload) : gather_list(), on);
    return s;
  }
  message_info hear(std::uint64_t expected, std::uint64_t on = 0) {
    std::uint64_t got = 0;
    head_op h(got);
    h.on = lane(on);
    c.at(1).start(h);
    REQUIRE(c.until([&] { return h.ended(); }));
    REQUIRE_MESSAGE(h.done(), h.failure_detail);
    CHECK(got == expected);
    return h.info;
  }
  void take(std::size_t bytes, std::uint64_t on = 0) {
    std::vector<std::uint8_t> room(bytes);
    receive_op r;
    receive(c, r, 1, 0, room, on);
    REQUIRE(c.until([&] { return r.ended(); }));
    CHECK_MESSAGE(r.done(), r.failure_detail);
    CHECK(r.info.bytes == bytes);
  }

  cluster c;
  std::deque<std::uint64_t> heads;
  std::deque<send_op> sends;
  const std::vector<std::uint8_t> none;
  const std::vector<std::uint8_t> some = std::vector<std::uint8_t>(100, 7);
};

}  // namespace

TEST_SUITE("host empty payloads") {
  TEST_CASE("a receiver that always receives what follows a head gets it, of no bytes") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      for (const bool sent_first : {true, false}) {
        CAPTURE(sent_first);
        lane_of_heads l(g);
        if (sent_first) {
          l.say(1, &l.none);
          l.say(2, &l.some);
          l.c.settle();
          CHECK(l.hear(1).has_payload);
          l.take(0);
          CHECK(l.hear(2).has_payload);
          l.take(100);
        } else {
          std::uint64_t first = 0;
          std::uint64_t second = 0;
          std::vector<std::uint8_t> nothing;
          head_op h(first);
          receive_op r;
          head_op h2(second);
          l.c.at(1).start(h);
          receive(l.c, r, 1, 0, nothing);
          l.c.at(1).start(h2);
          l.say(1, &l.none);
          REQUIRE(l.c.until([&] { return h.ended() && r.ended(); }));
          CHECK(r.done());
          CHECK_FALSE(h2.ended());
          l.say(2, &l.some);
          REQUIRE(l.c.until([&] { return h2.ended(); }));
          CHECK(second == 2);
          l.take(100);
        }
      }
    }
  }

  TEST_CASE("behind a head alone nothing stands: a receive waits for the next message") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      lane_of_heads l(g);
      l.say(1, nullptr);
      CHECK_FALSE(l.hear(1).has_payload);
      std::vector<std::uint8_t> room(8);
      receive_op r;
      receive(l.c, r, 1, 0, room);
      l.c.settle();
      CHECK_FALSE(r.ended());
      const auto next = pattern(8);
      send_op s;
      send(l.c, s, 0, 1, next);
      REQUIRE(l.c.until([&] { return r.ended(); }));
      CHECK(r.done());
      CHECK(r.info.has_payload);
      CHECK(room == next);
    }
  }

  TEST_CASE("a receiver that looks at the size meets the next head all the same") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      lane_of_heads l(g);
      for (std::uint64_t i = 1; i <= 4; ++i) l.say(i, &l.none);
      l.c.settle();
      for (std::uint64_t i = 1; i <= 4; ++i) CHECK(l.hear(i).bytes == 0);
      // Also one that waits already.
      std::uint64_t got = 0;
      head_op h(got);
      l.c.at(1).start(h);
      l.c.settle();
      CHECK_FALSE(h.ended());
      l.say(5, &l.some);
      REQUIRE(l.c.until([&] { return h.ended(); }));
      CHECK(got == 5);
      l.take(100);
    }
  }

  TEST_CASE("a head from any member is not held up by a payload that was not received") {
    cluster c(3, ground::simulated);
    std::deque<send_op> sends(2);
    std::uint64_t said[] = {1, 2};
    const std::vector<std::uint8_t> none;
    std::uint64_t got = 0;
    for (rank_t r : {1, 2}) {
      send_op& s = sends[static_cast<std::size_t>(r - 1)];
      s.head = &said[r - 1];
      s.head_bytes = sizeof said[0];
      s.gives_payload = true;
      send(c, s, r, 0, none);
    }
    c.settle();
    std::uint64_t sum = 0;
    for (int i = 0; i < 2; ++i) {
      head_op h(got);
      h.peer = no_rank;
      c.at(0).start(h);
      REQUIRE(c.until([&] { return h.ended(); }));
      REQUIRE(h.done());
      sum += got;
    }
    CHECK(sum == 3);
  }

  TEST_CASE(
      "a payload of no bytes that is not received holds no window and no delivery") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      lane_of_heads l(g);
      send_op& s = l.say(0, &l.none, true, 1000);
      (void)l.hear(0, 1000);
      REQUIRE(l.c.until([&] { return s.ended(); }));
      CHECK(s.done());
      for (std::uint64_t i = 1; i <= 1'500; ++i) {
        send_op& next = l.say(i, &l.none, false, i);
        REQUIRE(l.c.until([&] { return next.ended(); }));
        REQUIRE(next.done());
        (void)l.hear(i, i);
      }
    }
  }

  TEST_CASE("payloads of no bytes that are not received are forgotten with their lanes") {
    host_backend_options options;
    options.known_lanes = 100;
    cluster c(2, ground::simulated, options);
    const std::vector<std::uint8_t> none;
    for (std::uint64_t i = 0; i < 600; ++i) {
      send_op s;
      s.head = &i;
      s.head_bytes = sizeof i;
      s.gives_payload = true;
      send(c, s, 0, 1, none, i);
      std::uint64_t got = 0;
      head_op h(got);
      h.on = lane(i);
      c.at(1).start(h);
      REQUIRE(c.until([&] { return s.ended() && h.ended(); }));
      CHECK(got == i);
      // What was consumed is credited, and its lane may go.
      c.settle();
    }
    CHECK(c.at(1).lanes().size() < 200);
  }

  TEST_CASE(
      "a lane may be forgotten while its last message is passed over for another's") {
    constexpr std::uint64_t known_lanes = 100;
    host_backend_options options;
    options.known_lanes = known_lanes;
    cluster c(2, ground::simulated, options);
    const std::vector<std::uint8_t> none;
    std::deque<send_op> sends;
    const auto say = [&](std::uint64_t& word, std::uint64_t number) {
      send_op& s = sends.emplace_back();
      s.head = &word;
      s.head_bytes = sizeof word;
      s.gives_payload = true;
      send(c, s, 0, 1, none, number);
    };
    // As many as are known have a payload of no bytes that was not received; lane 0 is
    // the first of them.
    for (std::uint64_t i = 0; i < known_lanes; ++i) {
      say(i, i);
      std::uint64_t got = 0;
      head_op h(got);
      h.on = lane(i);
      c.at(1).start(h);
      REQUIRE(c.until([&] { return h.ended(); }));
      c.settle();
    }
    REQUIRE(c.at(1).lanes().size() == known_lanes);
    std::uint64_t next = 1000;
    say(next, 2 * known_lanes);
    c.settle();
    std::uint64_t got = 0;
    head_op h(got);
    h.takes_fresh_lanes = true;
    c.at(1).start(h);
    REQUIRE(c.until([&] { return h.ended(); }));
    CHECK(h.done());
    CHECK(got == next);
    CHECK(h.info.on == lane(2 * known_lanes));
    const auto left = c.at(1).lanes();
    CHECK(std::none_of(left.begin(), left.end(),
                       [](const auto& l) { return l.on == lane(0); }));
  }

  TEST_CASE("a payload of no bytes is one also where its head needed no window") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      for (const bool waits_for_both : {true, false}) {
        CAPTURE(waits_for_both);
        lane_of_heads l(g);
        // Other lanes have used up the window.
        for (std::uint64_t i = 0; l.sends.empty() || l.sends.back().ended(); ++i) {
          REQUIRE(i < 2'000);
          l.say(i, nullptr, false, 1'000 + i);
          l.c.settle();
        }
        send_op& s = l.say(1, &l.none, false, 7);
        l.say(2, &l.some, false, 7);
        l.c.settle();
        REQUIRE_FALSE(s.ended());
        if (waits_for_both) {
          std::uint64_t got = 0;
          std::vector<std::uint8_t> nothing;
          head_op h(got);
          receive_op r;
          h.on = lane(7);
          l.c.at(1).start(h);
          receive(l.c, r, 1, 0, nothing, 7);
          REQUIRE(l.c.until([&] { return h.ended() && r.ended(); }));
          CHECK(got == 1);
          CHECK(r.done());
        } else {
          CHECK(l.hear(1, 7).has_payload);
          l.take(0, 7);
        }
        REQUIRE(l.c.until([&] { return s.ended(); }));
        CHECK(s.done());
        CHECK(l.hear(2, 7).has_payload);
        l.take(100, 7);
      }
    }
  }

  TEST_CASE("an arrival tells of the payload that is left") {
    lane_of_heads l(ground::simulated);
    l.say(1, &l.none);
    (void)l.hear(1);
    arrival_op a;
    a.peer = 0;
    l.c.at(1).start(a);
    REQUIRE(l.c.until([&] { return a.ended(); }));
    CHECK(a.info.has_payload);
    CHECK(a.info.bytes == 0);
    CHECK(a.info.head_bytes == 0);
    l.take(0);
  }
}

}  // namespace manyworlds::host_tests::payloads
