// What lists and credit are like after a step that found no memory.
#include <new>

#include "cluster.hpp"
#include "host/known_lanes.hpp"
#include "host/lane_set.hpp"
#include "support/refused_memory.hpp"

using namespace manyworlds;
using namespace manyworlds::host_tests;
using testing::refused_memory;

namespace {

/// Returns whether the step was refused memory: the allocation behind `before` others.
template <class Step>
bool is_refused(int before, Step step) {
  try {
    const refused_memory next(before);
    step();
  } catch (const std::bad_alloc&) {
    return true;
  }
  return false;
}

/// Inserts lanes, in each step without the memory for each of its allocations first.
template <class Insert, class Contains>
void insert_with_refusals(Insert insert, Contains contains) {
  for (std::uint64_t lane = 1; lane <= 1000; ++lane) {
    int before = 0;
    while (is_refused(before, [&] { insert(lane); })) {
      REQUIRE_FALSE(contains(lane));
      ++before;
    }
    REQUIRE(contains(lane));
  }
}

}  // namespace

TEST_SUITE("host without memory") {
  TEST_CASE("a lane that found no memory is not known, and the next ones are") {
    host::known_lanes known(700);
    const auto nothing_is_in_use = [](std::uint64_t) { return false; };
    insert_with_refusals([&](std::uint64_t l) { known.insert(l, nothing_is_in_use); },
                         [&](std::uint64_t l) { return known.contains(l); });
    CHECK(known.size() == 700);
  }

  TEST_CASE("a known lane in use for which there is no memory in the order stays known") {
    // An order of a thousand lanes begins a new block now and then.
    host::known_lanes known(1000);
    const auto all_are_in_use = [](std::uint64_t) { return true; };
    for (std::uint64_t lane = 1; lane <= 1000; ++lane) known.insert(lane, all_are_in_use);
    int cut_short = 0;
    for (std::uint64_t lane = 1001; lane <= 3000; lane += 2) {
      int before = 0;
      while (is_refused(before, [&] { known.insert(lane, all_are_in_use); })) {
        ++before;
        // It was cut short while it looked for one to forget.
        if (known.contains(lane)) break;
      }
      cut_short += before > 0 && known.contains(lane);
      known.insert(lane + 1, all_are_in_use);
      REQUIRE(known.size() == lane + 1);
    }
    CHECK(cut_short > 0);
  }

  TEST_CASE("a lane that found no memory is not in the set, and the next ones are") {
    host::lane_set lanes(700);
    insert_with_refusals([&](std::uint64_t l) { (void)lanes.insert(l); },
                         [&](std::uint64_t l) { return lanes.contains(l); });
    CHECK(lanes.size() == 700);
    for (std::uint64_t lane = 1; lane <= 1000; ++lane) lanes.erase(lane);
    CHECK(lanes.size() == 0);
  }

  TEST_CASE("law 5: no message takes the place of one that was lost without memory") {
    if (testing::reading_is_refused_here()) return;
    for (const ground g : {ground::shared, ground::shared_in_runs}) {
      CAPTURE(std::string(name_of(g)));
      cluster c(2, g);
      const std::vector<std::uint8_t> lost(256 * 1024, 1);
      const std::vector<std::uint8_t> next(256 * 1024, 2);
      std::vector<std::uint8_t> got(lost.size());
      // What grows once has grown, and no timer is due where memory is refused.
      for (int i = 0; i < 3; ++i) carry(c, next, got);
      receive_op r;
      receive(c, r, 1, 0, got);
      REQUIRE(c.until([&] { return c[1].home->timers().empty(); }));
      send_op sends[2];
      send(c, sends[0], 0, 1, lost);
      send(c, sends[1], 0, 1, next);
      bool was_asked = false;
      // A link that has rested is looked at in some turns only.
      for (int turn = 0; turn < 100 && !was_asked; ++turn) {
        const refused_memory refused;
        c[1].home->turn();
        was_asked = refused_memory::was_asked();
      }
      REQUIRE(was_asked);
      c.settle();
      if (r.done()) CHECK(got == lost);
      CHECK_FALSE(c[1].events.quiet());
    }
  }

  TEST_CASE("a message that found no memory has no header in the stream either") {
    bool was_asked = true;
    for (int before = 0; was_asked; ++before) {
      CAPTURE(before);
      cluster c(2, ground::epoll);
      // A slice of this is under way until member 0 has a turn: the others queue.
      const std::vector<std::uint8_t> large(16 * 1024 * 1024, 3);
      std::vector<std::uint8_t> taken(large.size());
      receive_op all;
      receive(c, all, 1, 0, taken);
      send_op in_the_way;
      send(c, in_the_way, 0, 1, large);
      REQUIRE(c.until([&] { return in_the_way.bytes_moved > 0; }));
      const std::vector<std::uint8_t> some(800, 4);
      const std::vector<std::uint8_t> lost(300, 5);
      send_op sends[3];
      send(c, sends[0], 0, 1, some, 1);
      sends[1].peer = 1;
      sends[1].on = lane(2);
      sends[1].from_list = gather_list(std::span(lost));
      sends[1].source = sends[1].from_list.views();
      const std::uint64_t queued = c.at(0).queued(1);
      {
        const refused_memory refused(before);
        c.at(0).start(sends[1]);
        was_asked = refused_memory::was_asked();
      }
      CHECK((c.at(0).queued(1) == queued) == was_asked);
      send(c, sends[2], 0, 1, some, 3);
      std::vector<std::uint8_t> got(lost.size());
      receive_op r;
      receive(c, r, 1, 0, got, 2);
      c.settle();
      if (!was_asked) REQUIRE(c.until([&] { return r.ended(); }));
      CHECK(r.done() != was_asked);
      if (r.done()) CHECK(got == lost);
    }
  }

  TEST_CASE("law 9: who leaves without memory a world that all others left is not held") {
    for (int kind = 0; kind < 4; ++kind) {
      const bool is_at_rest = kind % 2 == 1;
      const ground g = kind < 2 ? ground::simulated : ground::shared_simulated;
      if (is_shared(g) && testing::reading_is_refused_here()) continue;
      CAPTURE(std::string(name_of(g)));
      CAPTURE(is_at_rest);
      bool was_asked = true;
      for (int before = 0; was_asked; ++before) {
        CAPTURE(before);
        cluster c(2, g);
        const time_point deadline = c[0].home->now() + std::chrono::seconds(60);
        c.at(1).leave(c[1].gone, deadline);
        REQUIRE(c.until([&] { return !c[0].events.left.empty(); }));
        // Its channel has come to rest, or is about to.
        if (is_at_rest) c.settle();
        {
          const refused_memory refused(before);
          c.at(0).leave(c[0].gone, deadline);
          was_asked = refused_memory::was_asked();
        }
        // Such a world breaks no more: nothing else would end the leave.
        REQUIRE(c.until([&] { return c[0].gone.runs == 1; }));
        if (is_at_rest) CHECK(c[0].home->now() < deadline - std::chrono::seconds(30));
      }
    }
  }

  TEST_CASE("credit for which there is no memory is not half owed") {
    host_backend_options options;
    options.eager_limit = 4096;
    options.lane_window = 16384;
    for (const ground g : {ground::simulated, ground::asking}) {
      CAPTURE(std::string(name_of(g)));
      // Each refusal breaks a world of its own.
      bool was_asked = true;
      for (int before = 0; was_asked; ++before) {
        CAPTURE(before);
        cluster c(2, g, options);
        // More than half the lane's window together: credit is returned at once.
        const auto sent = pattern(options.eager_limit - 100);
        send_op sends[3];
        for (send_op& s : sends) send(c, s, 0, 1, sent);
        send_op on_another_lane;
        send(c, on_another_lane, 0, 1, sent, 7);
        c.settle();
        std::vector<std::uint8_t> got(sent.size());
        // Its credit is owed already: what returns it is armed, and the list is full.
        receive_op ahead;
        receive(c, ahead, 1, 0, got, 7);
        receive_op first;
        first.peer = 0;
        first.into_list = scatter_list(std::span(got));
        first.target = first.into_list.views();
        {
          const refused_memory next(before);
          c.at(1).start(first);
          was_asked = refused_memory::was_asked();
        }
        CHECK(c[1].events.quiet() != was_asked);
        // A world goes on for a moment when it must break.
        receive_op others[2];
        for (receive_op& r : others) receive(c, r, 1, 0, got);
        c.settle();
        if (!first.ended()) (void)c.at(1).withdraw(first);
        for (receive_op& r : others) {
          if (!r.ended()) (void)c.at(1).withdraw(r);
        }
      }
    }
  }
}
