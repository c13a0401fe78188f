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
