// The window that all lanes share: messages that no receive takes fill it, and must not
// keep those from their receives that have one (laws 9, 10).
#include <algorithm>
#include <deque>

#include "cluster.hpp"
#include "host/device_payload.hpp"

using namespace manyworlds;
using namespace manyworlds::host_tests;

namespace {

constexpr std::size_t sizes[] = {4'096, 16'384, 65'536};

/// So that a test fills it soon.
host_backend_options narrow() {
  host_backend_options options;
  options.world_window = std::size_t{512} * 1024;
  return options;
}

struct request {
  std::vector<std::uint8_t> bytes;
  std::vector<std::uint8_t> got;
  send_op s;
  receive_op r;
};

/// Sends on a lane of its own each, until the window that all share has no room left.
class flood {
 public:
  explicit flood(cluster& c, std::uint64_t first_lane = 1'000) : lane_(first_lane) {
    for (int i = 0; i < 200; ++i) {
      request& r = requests_.emplace_back();
      r.bytes = pattern(16'384, static_cast<unsigned>(i));
      send(c, r.s, 0, 1, r.bytes, lane_ + static_cast<std::uint64_t>(i));
      c.settle();
      if (!r.s.ended()) return;
    }
    FAIL("the window has no end");
  }
  /// The first that is not accepted is the last one.
  [[nodiscard]] request& waiting() { return requests_.back(); }
  [[nodiscard]] std::size_t accepted() const { return requests_.size() - 1; }
  [[nodiscard]] std::uint64_t lane_of(std::size_t i) const { return lane_ + i; }
  request& operator[](std::size_t i) { return requests_[i]; }

 private:
  std::uint64_t lane_;
  std::deque<request> requests_;
};

const lane_status* status_of(const std::vector<lane_status>& all, std::uint64_t on) {
  for (const lane_status& l : all) {
    if (l.on.number() == on) return &l;
  }
  return nullptr;
}

}  // namespace

TEST_SUITE("host shared window") {
  TEST_CASE(
      "law 10: however many messages lie on lanes that are not received on, a message "
      "with a waiting receive comes") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g, narrow());
      // The requests that are given up: four windows of them, as far as they are
      // accepted.
      std::deque<request> requests;
      std::size_t sent = 0;
      for (unsigned i = 0; sent < 4 * narrow().world_window; ++i) {
        CAPTURE(i);
        request& q = requests.emplace_back();
        q.bytes = pattern(sizes[i % 3], i);
        q.got.resize(q.bytes.size());
        sent += q.bytes.size();
        const bool is_given_up = i % 2 == 1;
        const bool receives_first = i % 4 < 2;
        if (receives_first && !is_given_up) receive(c, q.r, 1, 0, q.got, i);
        send(c, q.s, 0, 1, q.bytes, i);
        if (is_given_up) continue;
        if (!receives_first) {
          c.settle();
          receive(c, q.r, 1, 0, q.got, i);
        }
        REQUIRE(c.until([&] { return q.r.ended() && q.s.ended(); }));
        CHECK(q.r.done());
        CHECK(q.s.done());
        CHECK(q.got == q.bytes);
      }
      // Nothing was lost: each of those that were not received is there for a later one.
      for (unsigned i = 1; i < requests.size(); i += 2) {
        request& q = requests[i];
        receive(c, q.r, 1, 0, q.got, i);
        REQUIRE(c.until([&] { return q.r.ended() && q.s.ended(); }));
        CHECK(q.got == q.bytes);
      }
      CHECK(c[0].events.quiet());
      CHECK(c[1].events.quiet());
    }
  }

  TEST_CASE("a receive that is given up sends a message back, which keeps its place") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      for (const std::size_t bytes : {std::size_t{100}, std::size_t{40'000}}) {
        CAPTURE(bytes);
        for (int stage = 0; stage < 8; ++stage) {
          CAPTURE(stage);
          cluster c(2, g, narrow(), static_cast<std::uint64_t>(stage) + 1);
          flood full(c);
          const auto first = pattern(bytes, 1);
          const auto second = pattern(bytes, 2);
          send_op s[2];
          send(c, s[0], 0, 1, first, 7);
          send(c, s[1], 0, 1, second, 7);
          std::vector<std::uint8_t> lost(bytes);
          receive_op r;
          receive(c, r, 1, 0, lost, 7);
          for (int turn = 0; turn < stage; ++turn) c.turn();
          const bool given_up = !r.ended() && c.at(1).withdraw(r);
          if (!given_up) REQUIRE(c.until([&] { return r.ended(); }));
          c.settle();
          if (r.done()) {
            CHECK(lost == first);
          } else {
            CHECK(next_received(c, bytes, 7) == first);
          }
          CHECK(next_received(c, bytes, 7) == second);
          CHECK(c.until([&] { return s[0].ended() && s[1].ended(); }));
          CHECK(s[0].done());
          CHECK(s[1].done());
          CHECK(c[0].events.quiet());
          CHECK(c[1].events.quiet());
        }
      }
    }
  }

  TEST_CASE("a send that waits for the window is announced, and taken, head first") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g, narrow());
      flood full(c);
      const auto sent = pattern(20'000, 9);
      std::uint64_t head = 77;
      send_op s;
      s.head = &head;
      s.head_bytes = sizeof head;
      send(c, s, 0, 1, sent, 7, 5);
      c.settle();
      CHECK_FALSE(s.ended());
      arrival_op look;
      look.peer = 0;
      look.on = lane(7);
      c.at(1).start(look);
      REQUIRE(c.until([&] { return look.ended(); }));
      CHECK(look.info.head_bytes == sizeof head);
      CHECK(look.info.bytes == sent.size());
      std::uint64_t got_head = 0;
      receive_op takes_head;
      takes_head.peer = 0;
      takes_head.on = lane(7);
      takes_head.head = &got_head;
      takes_head.head_bytes = sizeof got_head;
      c.at(1).start(takes_head);
      REQUIRE(c.until([&] { return takes_head.ended(); }));
      CHECK(got_head == 77);
      CHECK(next_received(c, sent.size(), 7) == sent);
      CHECK(c.until([&] { return s.ended(); }));
      CHECK(s.done());
    }
  }

  TEST_CASE("a head alone, and a description, need no window if a receive waits") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g, narrow());
      flood full(c);
      const std::uint64_t head = 78;
      send_op s;
      s.head = const_cast<std::uint64_t*>(&head);
      s.head_bytes = sizeof head;
      s.peer = 1;
      s.on = lane(7);
      c.at(0).start(s);
      std::vector<std::byte> text(64, std::byte{0x5A});
      host::encode({4096, dtype::float32},
                   std::span(text).first<host::device_payload_prefix_size>());
      device_payload there;
      send_op far;
      far.on_device = &there;
      far.delivered = true;
      std::deque<send_op> small(200);
      const std::uint8_t byte = 1;
      // So that not even a description finds room.
      for (std::size_t i = 0; i < small.size(); ++i) {
        send(c, small[i], 0, 1, std::span(&byte, 1), 5'000 + i);
      }
      send(c, far, 0, 1, text, 8);
      c.settle();
      std::uint64_t got = 0;
      receive_op r;
      r.peer = 0;
      r.on = lane(7);
      r.head = &got;
      r.head_bytes = sizeof got;
      c.at(1).start(r);
      REQUIRE(c.until([&] { return r.ended() && s.ended(); }));
      CHECK(got == 78);
      device_payload room;
      room.bytes = 4096;
      room.type = dtype::float32;
      receive_op takes;
      takes.on_device = &room;
      takes.peer = 0;
      takes.on = lane(8);
      c.at(1).start(takes);
      REQUIRE(c.until([&] { return takes.ended() && far.ended(); }));
      CHECK(takes.done());
      CHECK(far.done());
      CHECK(room.description == text);
    }
  }

  TEST_CASE("receives of fresh lanes, and from any member, are found by waiting sends") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(3, g, narrow());
      flood full(c);
      // What lies there is fresh too, and would come first.
      for (std::size_t i = 0; i < full.accepted(); ++i) {
        receive_op gone;
        std::vector<std::uint8_t> wrong_size(1);
        receive(c, gone, 1, 0, wrong_size, full.lane_of(i));
        REQUIRE(c.until([&] { return gone.ended(); }));
      }
      const std::uint64_t heads[] = {11, 12, 13};
      send_op s[3];
      receive_op r[3];
      std::uint64_t got[3] = {};
      std::vector<std::uint64_t> seen;
      for (int i = 0; i < 2; ++i) {
        r[i].peer = i == 0 ? 0 : no_rank;
        r[i].takes_fresh_lanes = true;
        r[i].head = &got[i];
        r[i].head_bytes = sizeof got[i];
        c.at(1).start(r[i]);
      }
      for (int i = 0; i < 3; ++i) {
        s[i].head = const_cast<std::uint64_t*>(&heads[i]);
        s[i].head_bytes = sizeof heads[i];
        s[i].peer = 1;
        s[i].on = lane(static_cast<std::uint64_t>(7 + i));
        c.at(0).start(s[i]);
      }
      REQUIRE(c.until([&] { return r[0].ended() && r[1].ended(); }));
      // And one that begins to wait last.
      r[2].peer = no_rank;
      r[2].takes_fresh_lanes = true;
      r[2].head = &got[2];
      r[2].head_bytes = sizeof got[2];
      c.at(1).start(r[2]);
      REQUIRE(c.until([&] { return r[2].ended(); }));
      std::sort(std::begin(got), std::end(got));
      CHECK(std::equal(std::begin(got), std::end(got), std::begin(heads)));
      REQUIRE(c.until([&] { return s[0].ended() && s[1].ended() && s[2].ended(); }));

      // By number, from any.
      const auto sent = pattern(300, 3);
      std::vector<std::uint8_t> into(300);
      send_op by_number;
      receive_op from_any;
      receive(c, from_any, 1, no_rank, into, 70);
      send(c, by_number, 0, 1, sent, 70);
      REQUIRE(c.until([&] { return from_any.ended() && by_number.ended(); }));
      CHECK(into == sent);
    }
  }

  TEST_CASE("waiting sends can be given up at any moment, and the rest goes on") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      for (int stage = 0; stage < 8; ++stage) {
        CAPTURE(stage);
        cluster c(2, g, narrow(), static_cast<std::uint64_t>(stage) + 1);
        flood full(c);
        const auto sent = pattern(40'000, 1);
        const auto last = pattern(40'000, 2);
        std::vector<std::uint8_t> got(sent.size());
        send_op s[2];
        receive_op r;
        send(c, s[0], 0, 1, sent, 7);
        send(c, s[1], 0, 1, last, 7);
        receive(c, r, 1, 0, got, 7);
        for (int turn = 0; turn < stage; ++turn) c.turn();
        const bool at_once = !s[0].ended() && c.at(0).withdraw(s[0]);
        if (!at_once) REQUIRE(c.until([&] { return s[0].ended(); }));
        // A receive that has seen the beginning of what is given up ends with that.
        REQUIRE(c.until([&] { return r.ended(); }));
        if (r.done() && got == sent) {
          CHECK_FALSE(at_once);
        } else if (r.done()) {
          CHECK(got == last);
        } else {
          CHECK(r.failed(cause::cancelled_by_peer));
        }
        if (!r.done() || got == sent) CHECK(next_received(c, last.size(), 7) == last);
        CHECK(c.until([&] { return s[1].ended(); }));
        CHECK(s[1].done());
        CHECK(c[0].events.quiet());
        CHECK(c[1].events.quiet());
      }
    }
  }

  TEST_CASE("offers that are not received leave room for one with a waiting receive") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g);
      const auto large = pattern(70'000);
      std::deque<send_op> offers(1'100);
      for (std::size_t i = 0; i < offers.size(); ++i) {
        send(c, offers[i], 0, 1, large, 100 + i);
      }
      c.settle();
      // What needs no offer goes on, and what needs one if a receive waits.
      const std::uint64_t word = 5;
      std::uint64_t got_word = 0;
      send_op small;
      receive_op takes_small;
      send(c, small, 0, 1, std::span(&word, 1), 7);
      receive(c, takes_small, 1, 0, std::span(&got_word, 1), 7);
      REQUIRE(c.until([&] { return takes_small.ended() && small.ended(); }));
      CHECK(got_word == 5);
      for (const std::size_t i :
           {std::size_t{1'099}, std::size_t{1'024}, std::size_t{3}}) {
        CHECK(next_received(c, large.size(), 100 + i) == large);
        CHECK(c.until([&] { return offers[i].ended(); }));
      }
      for (send_op& each : offers) {
        if (!each.ended()) CHECK(c.at(0).withdraw(each));
      }
    }
  }

  TEST_CASE("a discarded lane gives its window back, and its sends end") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g, narrow());
      flood full(c);
      const auto bytes = pattern(100'000);
      send_op large;
      send_op delivered;
      send_op waiting_small;
      delivered.delivered = true;
      const std::uint64_t word = 6;
      send(c, large, 0, 1, bytes, full.lane_of(0));
      send(c, delivered, 0, 1, std::span(&word, 1), full.lane_of(1));
      send(c, waiting_small, 0, 1, bytes, 9);
      c.settle();
      CHECK_FALSE(large.ended());
      CHECK_FALSE(delivered.ended());
      for (std::size_t i = 0; i <= full.accepted(); ++i) {
        c.at(1).discard(0, lane(full.lane_of(i)));
      }
      c.at(1).discard(no_rank, lane(9));
      REQUIRE(c.until([&] {
        return large.ended() && delivered.ended() && waiting_small.ended() &&
               full.waiting().s.ended();
      }));
      CHECK(large.failed(cause::cancelled_by_peer));
      CHECK(large.failure_detail == "rank 1 takes no more on lane 1000");
      CHECK(delivered.failed(cause::cancelled_by_peer));
      CHECK(waiting_small.failed(cause::cancelled_by_peer));
      // All of the window is free again.
      REQUIRE(c.until([&] {
        const auto lanes = c.at(0).lanes();
        return std::all_of(lanes.begin(), lanes.end(),
                           [](const lane_status& l) { return l.window_at_peer == 0; });
      }));
      CHECK(c.at(0).undelivered().empty());
      // What comes later is dropped likewise, and takes no window.
      for (int i = 0; i < 100; ++i) {
        send_op late;
        send(c, late, 0, 1, std::span(bytes).first(16'384), full.lane_of(0));
        REQUIRE(c.until([&] { return late.ended(); }));
        CHECK((late.done() || late.failed(cause::cancelled_by_peer)));
      }
      send_op late_offer;
      send(c, late_offer, 0, 1, bytes, full.lane_of(0));
      REQUIRE(c.until([&] { return late_offer.ended(); }));
      CHECK(late_offer.failed(cause::cancelled_by_peer));
      c.settle();
      // Until a receive names it again.
      std::vector<std::uint8_t> got(bytes.size());
      receive_op r;
      receive(c, r, 1, 0, got, full.lane_of(0));
      send_op again;
      send(c, again, 0, 1, bytes, full.lane_of(0));
      REQUIRE(c.until([&] { return r.ended() && again.ended(); }));
      CHECK(r.done());
      CHECK(again.done());
      CHECK(got == bytes);
      CHECK(c[0].events.quiet());
      CHECK(c[1].events.quiet());
    }
  }

  TEST_CASE("discarding spares the receive that is taking, and ends those that wait") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g);
      const auto bytes = pattern(4U << 20);
      std::vector<std::uint8_t> got(bytes.size());
      receive_op takes;
      receive_op waits;
      std::uint64_t none = 0;
      send_op s;
      receive(c, takes, 1, 0, got, 3);
      receive(c, waits, 1, 0, std::span(&none, 1), 3);
      send(c, s, 0, 1, bytes, 3);
      REQUIRE(c.until([&] { return takes.begun || takes.ended(); }));
      c.at(1).discard(0, lane(3));
      REQUIRE(c.until([&] { return takes.ended() && s.ended(); }));
      CHECK(takes.done());
      CHECK(s.done());
      CHECK(got == bytes);
      CHECK(waits.failed(cause::cancelled));
    }
  }

  TEST_CASE("a receive that discards its lane does so when it is given up, not else") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      for (int stage = 0; stage < 8; ++stage) {
        CAPTURE(stage);
        cluster c(2, g, {}, static_cast<std::uint64_t>(stage) + 1);
        const auto bytes = pattern(2U << 20);
        std::vector<std::uint8_t> got(bytes.size());
        receive_op r;
        r.discards = true;
        receive(c, r, 1, 0, got, 3);
        send_op s;
        send(c, s, 0, 1, bytes, 3);
        for (int turn = 0; turn < stage; ++turn) c.turn();
        const bool at_once = !r.ended() && c.at(1).withdraw(r);
        if (!at_once) REQUIRE(c.until([&] { return r.ended(); }));
        REQUIRE(c.until([&] { return s.ended(); }));
        if (r.done()) {
          CHECK(s.done());
        } else {
          CHECK(s.failed(cause::cancelled_by_peer));
        }
        send_op next;
        send(c, next, 0, 1, bytes, 3);
        if (r.done()) {
          CHECK(next_received(c, bytes.size(), 3) == bytes);
        } else {
          REQUIRE(c.until([&] { return next.ended(); }));
          CHECK(next.failed(cause::cancelled_by_peer));
        }
        REQUIRE(c.until([&] { return next.ended(); }));
        CHECK(c[0].events.quiet());
        CHECK(c[1].events.quiet());
      }
    }
  }

  TEST_CASE("a lane for each request, all of them discarded, leaves nothing behind") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      host_backend_options options = narrow();
      options.known_lanes = 100;
      cluster c(2, g, options);
      const auto bytes = pattern(16'384);
      for (std::uint64_t i = 0; i < 600; ++i) {
        send_op s;
        receive_op r;
        std::vector<std::uint8_t> got(bytes.size());
        r.discards = true;
        receive(c, r, 1, 0, got, i);
        REQUIRE(c.at(1).withdraw(r));
        send(c, s, 0, 1, bytes, i);
        REQUIRE(c.until([&] { return s.ended(); }));
        // Accepted before it was dropped, or dropped where it was offered.
        CHECK((s.done() || s.failed(cause::cancelled_by_peer)));
      }
      REQUIRE(c.until(
          [&] { return c.at(0).lanes().size() < 150 && c.at(1).lanes().size() < 150; }));
    }
  }

  TEST_CASE("a delivered send that is given up takes its message and its window back") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g, narrow());
      const auto bytes = pattern(8'000);
      std::deque<send_op> sends(500);
      // Eight windows of them, one at a time: each finds room at once.
      for (std::size_t i = 0; i < sends.size(); ++i) {
        send_op& s = sends[i];
        s.delivered = true;
        send(c, s, 0, 1, bytes, i);
        REQUIRE(c.until([&] {
          const auto there = c.at(1).lanes();
          const lane_status* l = status_of(there, i);
          return l && l->unexpected_messages == 1;
        }));
        const bool at_once = c.at(0).withdraw(s);
        if (!at_once) REQUIRE(c.until([&] { return s.ended(); }));
        CHECK((at_once || s.withdrawn()));
      }
    }
  }

  TEST_CASE("a send that is given up behind its head takes its window back too") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g, narrow());
      const auto bytes = pattern(8'000);
      std::deque<send_op> sends(300);
      for (std::uint64_t i = 0; i < sends.size(); ++i) {
        send_op& s = sends[i];
        s.delivered = true;
        s.head = &i;
        s.head_bytes = sizeof i;
        send(c, s, 0, 1, bytes, i);
        REQUIRE(c.until([&] {
          const auto there = c.at(1).lanes();
          const lane_status* l = status_of(there, i);
          return l && l->unexpected_messages == 1;
        }));
        std::uint64_t head = 0;
        receive_op h;
        h.head = &head;
        h.head_bytes = sizeof head;
        receive(c, h, 1, 0, std::span<std::uint8_t>{}, i);
        REQUIRE(c.until([&] { return h.ended(); }));
        CHECK(head == i);
        const bool at_once = c.at(0).withdraw(s);
        if (!at_once) REQUIRE(c.until([&] { return s.ended(); }));
        CHECK((at_once || s.withdrawn()));
      }
      // A receive of the payload that comes after all is told, and the lane goes on.
      std::vector<std::uint8_t> got(bytes.size());
      receive_op told;
      receive(c, told, 1, 0, got, 7);
      REQUIRE(c.until([&] { return told.ended(); }));
      CHECK(told.failed(cause::cancelled_by_peer));
      send_op next;
      receive_op taken;
      send(c, next, 0, 1, bytes, 7);
      receive(c, taken, 1, 0, got, 7);
      REQUIRE(c.until([&] { return taken.ended(); }));
      CHECK(got == bytes);
      CHECK(c[0].events.quiet());
      CHECK(c[1].events.quiet());
    }
  }

  TEST_CASE("a receive is told of to a waiting send also when answers found no room") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g, narrow());
      flood full(c);
      const auto sent = pattern(16'384, 3);
      std::vector<std::uint8_t> got(sent.size());
      send_op s;
      send(c, s, 0, 1, sent, 7);
      c.settle();
      REQUIRE_FALSE(s.ended());
      // More than a ring has room for, of lanes on which nothing waits to be sent.
      std::uint8_t none = 0;
      std::deque<receive_op> others(300);
      for (std::size_t i = 0; i < others.size(); ++i) {
        receive(c, others[i], 1, 0, std::span(&none, 1), 5'000 + i);
      }
      receive_op r;
      receive(c, r, 1, 0, got, 7);
      REQUIRE(c.until([&] { return r.ended() && s.ended(); }));
      CHECK(got == sent);
      for (receive_op& each : others) CHECK(c.at(1).withdraw(each));
    }
  }

  TEST_CASE(
      "law 7: credit of many lanes, none worth a frame yet, lets the reactor sleep") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g);
      std::deque<request> all(6);
      for (std::size_t i = 0; i < all.size(); ++i) {
        all[i].bytes = pattern(60'000, static_cast<unsigned>(i));
        all[i].got.resize(60'000);
        receive(c, all[i].r, 1, 0, all[i].got, 100 + i);
        send(c, all[i].s, 0, 1, all[i].bytes, 100 + i);
      }
      REQUIRE(c.until([&] {
        return std::all_of(all.begin(), all.end(),
                           [](request& each) { return each.r.ended(); });
      }));
      bool rests = false;
      for (int i = 0; i < 2'000 && !rests; ++i) rests = !c[1].home->turn();
      CHECK(rests);
    }
  }

  TEST_CASE("receives of fresh lanes meet one behind a thousand that are not") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g, narrow());
      flood full(c);
      std::deque<send_op> sends(1'200);
      const auto bytes = pattern(16'384);
      const auto make_known = [&](std::uint64_t on) {
        std::uint8_t wrong_size = 0;
        receive_op r;
        receive(c, r, 1, 0, std::span(&wrong_size, 1), on);
        if (!r.ended()) CHECK(c.at(1).withdraw(r));
      };
      for (std::size_t i = 0; i <= full.accepted(); ++i) make_known(full.lane_of(i));
      for (std::size_t i = 0; i < sends.size(); ++i) make_known(5'000 + i);
      for (std::size_t i = 0; i < sends.size(); ++i) {
        send(c, sends[i], 0, 1, bytes, 5'000 + i);
      }
      send_op last;
      send(c, last, 0, 1, bytes, 9'000);
      c.settle();
      arrival_op look;
      look.peer = 0;
      look.takes_fresh_lanes = true;
      c.at(1).start(look);
      REQUIRE(c.until([&] { return look.ended(); }));
      CHECK(look.info.on.number() == 9'000);
      for (send_op& s : sends) CHECK((s.ended() || c.at(0).withdraw(s)));
      if (!last.ended() && !c.at(0).withdraw(last)) {
        REQUIRE(c.until([&] { return last.ended(); }));
      }
    }
  }

  TEST_CASE("a receive meets the other members' messages when its own is taken back") {
    for (const ground g : {ground::epoll, ground::asking}) {
      CAPTURE(std::string(name_of(g)));
      for (const bool waits_for_window : {true, false}) {
        CAPTURE(waits_for_window);
        cluster c(3, g, narrow());
        flood full(c);
        const std::uint8_t byte = 1;
        // So that not even an offer finds room.
        std::deque<send_op> small(waits_for_window ? 300 : 0);
        for (std::size_t i = 0; i < small.size(); ++i) {
          send(c, small[i], 0, 1, std::span(&byte, 1), 5'000 + i);
        }
        const auto first = pattern(100'000, 1);
        const auto second = pattern(100'000, 2);
        std::vector<std::uint8_t> got(first.size());
        send_op taken_back;
        send_op s;
        receive_op r;
        send(c, taken_back, 2, 1, first, 7);
        c.settle();
        receive(c, r, 1, no_rank, got, 7);
        send(c, s, 0, 1, second, 7);
        // Member 2 does not see yet that its message is being taken.
        for (int turn = 0; turn < 200; ++turn) {
          c[0].home->turn();
          c[1].home->turn();
        }
        CHECK((s.waits_for == send_obstacle::world_window) == waits_for_window);
        REQUIRE_FALSE(r.ended());
        CHECK(c.at(2).withdraw(taken_back));
        REQUIRE(c.until([&] { return r.ended() && s.ended(); }));
        CHECK(r.done());
        CHECK(r.info.source == 0);
        CHECK(got == second);
      }
    }
  }

  TEST_CASE("discarding drops what is copied unasked and all behind it, to no receive") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      bool was_met = false;
      for (int stage = 0; stage < 12; ++stage) {
        CAPTURE(stage);
        cluster c(2, g, {}, static_cast<std::uint64_t>(stage) + 1);
        const auto first = pattern(16'384, 1);
        const auto second = pattern(100, 2);
        std::vector<std::uint8_t> got(second.size());
        send_op s[2];
        send(c, s[0], 0, 1, first, 7);
        send(c, s[1], 0, 1, second, 7);
        for (int turn = 0; turn < stage; ++turn) c.turn();
        receive_op r;
        receive(c, r, 1, 0, got, 7);
        const auto lanes = c.at(1).lanes();
        const lane_status* l = status_of(lanes, 7);
        const bool waits_behind = !r.ended() && l && l->unexpected_messages == 2;
        was_met = was_met || waits_behind;
        c.at(1).discard(0, lane(7));
        REQUIRE(r.ended());
        CHECK((r.failed(cause::cancelled) || r.failed(cause::size_mismatch)));
        if (waits_behind) CHECK(r.failed(cause::cancelled));
        REQUIRE(c.until([&] { return s[0].ended() && s[1].ended(); }));
        CHECK(c[0].events.quiet());
        CHECK(c[1].events.quiet());
      }
      if (g == ground::asking) CHECK(was_met);
    }
  }

  TEST_CASE("a dump says what a send waits for, and which lanes hold the window") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g, narrow());
      flood full(c);
      CHECK(full.waiting().s.waits_for == send_obstacle::world_window);
      const auto sending = c.at(0).lanes();
      const lane_status* held = status_of(sending, full.lane_of(0));
      REQUIRE(held);
      CHECK(held->window_at_peer > 16'384);
      const lane_status* waits = status_of(sending, full.lane_of(full.accepted()));
      REQUIRE(waits);
      CHECK(waits->waits_for == send_obstacle::world_window);
      const auto receiving = c.at(1).lanes();
      const lane_status* here = status_of(receiving, full.lane_of(0));
      REQUIRE(here);
      CHECK(here->window_held == held->window_at_peer);
      CHECK(here->held_for > duration::zero());

      std::deque<send_op> more(20);
      const auto bytes = pattern(40'000);
      for (send_op& s : more) send(c, s, 0, 1, bytes, 3);
      CHECK(more.front().waits_for == send_obstacle::world_window);
      CHECK(more.back().waits_for == send_obstacle::earlier_sends);
    }
  }

  TEST_CASE("a send that has waited for long is logged once, with the lanes that hold") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      host_backend_options options = narrow();
      options.window_log = std::chrono::milliseconds(300);
      cluster c(2, g, options);
      flood full(c);
      REQUIRE(c.until([&] { return !c[0].events.warnings.empty(); }));
      const std::string& line = c[0].events.warnings.front();
      CAPTURE(line);
      CHECK(line.find("a send to rank 1 on lane " +
                      std::to_string(full.lane_of(full.accepted()))) == 0);
      CHECK(line.find("window of the world") != line.npos);
      CHECK(line.find("10") != line.npos);
      CHECK(line.find(" bytes)") != line.npos);
      CHECK(line.find("discard()") != line.npos);
      request other;
      other.bytes = pattern(16'384);
      send(c, other.s, 0, 1, other.bytes, 3);
      if (c[0].process) {
        c.sim().run_for(std::chrono::seconds(2));
      } else {
        c.until([] { return false; }, std::chrono::seconds(1));
      }
      CHECK(c[0].events.warnings.size() == 1);
    }
  }

  TEST_CASE("collectives go on while the window is used up") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g, narrow());
      flood full(c);
      barrier_op b[2];
      for (rank_t r = 0; r < 2; ++r) c.at(r).start(b[r]);
      CHECK(c.until([&] { return b[0].ended() && b[1].ended(); }));
    }
  }

  TEST_CASE("a leave does not wait for what the peer discards") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g, narrow());
      flood full(c);
      c.at(1).discard(0, lane(full.lane_of(full.accepted())));
      for (rank_t r = 0; r < 2; ++r) {
        c.at(r).leave(c[r].gone, c[r].home->now() + std::chrono::seconds(10));
      }
      CHECK(c.until([&] { return c[0].gone.runs == 1 && c[1].gone.runs == 1; }));
      CHECK(full.waiting().s.ended());
    }
  }
}
