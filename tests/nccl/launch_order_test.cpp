// One order of launches on a GPU: places, turns, proposals, what rank 0 decides, and a
// model of GPUs that would wait in a circle without it. Without a device.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nccl/launch_leader.hpp"
#include "nccl/launch_model.hpp"
#include "nccl/launch_order.hpp"
#include "nccl/proposal_table.hpp"

using namespace manyworlds;
using namespace manyworlds::nccl;
using namespace std::chrono_literals;
using ruling = order_seat::ruling;
using answered = proposal_table::outcome;

namespace {

/// A world's member on a GPU, that counts how often it was woken.
struct sitter {
  sitter(const std::shared_ptr<launch_order>& on, std::uint64_t world,
         const void* lane = nullptr)
      : seat(on, lane, [this] { ++rings; }) {
    seat.set_world(world);
  }
  /// A promise, and at once the decision for that time.
  std::uint64_t place(std::uint64_t number, launch_kind kind = launch_kind::operation) {
    const std::uint64_t time = seat.promise(number);
    REQUIRE(seat.decide(number, time, kind) == ruling::accepted);
    return time;
  }
  int rings = 0;
  order_seat seat;
};

const int one_thread = 0;
const int another_thread = 0;

/// What rank 0 said, to whom.
struct heard final : launch_leader::office {
  void tell(rank_t whom, const order_message& m) override { all.emplace_back(whom, m); }
  void accuse(rank_t whom, enum cause, std::string) override { accused = whom; }
  bool is_credible(std::uint64_t time) const override { return time < 1000; }

  template <class Message>
  std::vector<std::pair<rank_t, Message>> take() {
    std::vector<std::pair<rank_t, Message>> found;
    std::erase_if(all, [&](const auto& each) {
      const auto* m = std::get_if<Message>(&each.second);
      if (m) found.emplace_back(each.first, *m);
      return m != nullptr;
    });
    return found;
  }
  std::vector<std::pair<rank_t, order_message>> all;
  rank_t accused = no_rank;
};

collective_terms reduces() {
  collective_terms terms;
  terms.kind = operation_kind::all_reduce;
  terms.count = 8;
  return terms;
}

pair_request request_from(rank_t sender, std::uint64_t token) {
  pair_request request;
  request.sender = sender;
  request.token = token;
  return request;
}

/// A world of three with places and an open device.
struct placing {
  placing() : leader(3, said) {
    leader.use_places();
    for (rank_t r = 0; r < 3; ++r) leader.hear_made(r, {});
    for (rank_t r = 0; r < 3; ++r) leader.hear_promise(r, {1, 5}, {});
    leader.open({});
    said.all.clear();
  }
  heard said;
  launch_leader leader;
};

/// Circles in a number of runs.
int stuck_runs(testing::model_options o, int runs) {
  int stuck = 0;
  for (int i = 0; i < runs; ++i, ++o.seed) {
    testing::launch_model model(o);
    model.run();
    if (!model.unfinished().empty()) ++stuck;
  }
  return stuck;
}

void check_no_circle(testing::model_options o, int runs) {
  for (int i = 0; i < runs; ++i, ++o.seed) {
    CAPTURE(o.seed);
    CAPTURE(o.gpus);
    CAPTURE(o.connections);
    CAPTURE(o.worlds);
    testing::launch_model model(o);
    model.run();
    CHECK(model.unfinished() == std::vector<std::string>());
    CHECK(model.opposite_orders() == 0);
    CHECK(model.ended() > 0);
  }
}

/// Returns how many seeds each size of the sweep has: 4 in CI, 200 in `run.sh --full`.
int swept_seeds() {
  const char* wanted = std::getenv("MANYWORLDS_TEST_SEEDS");
  return wanted ? std::max(1, std::atoi(wanted) / 100) : 4;
}

/// Tries 2 to 64 worlds on GPUs with 1, 8 and 32 connections. There are 2, 3 and 8 GPUs
/// in turns, and each size has seeds of its own.
void check_sweep(testing::model_options o) {
  const int gpus[] = {3, 8, 2};
  std::size_t next = 0;
  for (const int connections : {1, 8, 32}) {
    o.connections = connections;
    // 64 worlds are on each number of GPUs once, with 32 connections on two.
    ++next;
    for (int worlds = 2; worlds <= 64; worlds *= 2) {
      o.gpus = gpus[next++ % std::size(gpus)];
      o.worlds = worlds;
      check_no_circle(o, swept_seeds());
      o.seed += 1000;
    }
  }
}

}  // namespace

TEST_SUITE("launch order") {
  TEST_CASE("the earliest decided place has the turn") {
    const auto order = std::make_shared<launch_order>();
    sitter a(order, 1);
    sitter b(order, 2);
    CHECK(a.seat.promise(7) == 1);
    CHECK(b.seat.promise(1) == 2);
    CHECK(b.seat.decide(1, 2, launch_kind::operation) == ruling::accepted);
    // What is undecided may still come first.
    CHECK_FALSE(b.seat.next_turn());
    CHECK(a.seat.decide(7, 9, launch_kind::operation) == ruling::accepted);
    CHECK(b.rings == 1);
    CHECK(b.seat.next_turn() == 1);
    CHECK_FALSE(a.seat.next_turn());
    launch_turn turn = b.seat.take(1);
    CHECK_FALSE(a.seat.next_turn());
    turn.give_up();
    CHECK(a.seat.next_turn() == 7);
  }

  TEST_CASE("a promise is later than all that the GPU has seen") {
    const auto order = std::make_shared<launch_order>();
    sitter a(order, 1);
    sitter b(order, 2);
    (void)a.seat.promise(1);
    CHECK(a.seat.decide(1, 500, launch_kind::operation) == ruling::accepted);
    CHECK(b.seat.promise(1) > 500);
  }

  TEST_CASE("equal times are ordered by the world on every GPU") {
    for (const bool first_comes_first : {true, false}) {
      const auto order = std::make_shared<launch_order>();
      sitter a(order, first_comes_first ? 1 : 2);
      sitter b(order, first_comes_first ? 2 : 1);
      (void)a.seat.promise(1);
      (void)b.seat.promise(1);
      CHECK(a.seat.decide(1, 10, launch_kind::operation) == ruling::accepted);
      CHECK(b.seat.decide(1, 10, launch_kind::operation) == ruling::accepted);
      CHECK(a.seat.next_turn().has_value() == first_comes_first);
      CHECK(b.seat.next_turn().has_value() != first_comes_first);
    }
  }

  TEST_CASE("one thread's operations do not wait for each other's launch") {
    const auto order = std::make_shared<launch_order>();
    sitter a(order, 1, &one_thread);
    sitter b(order, 2, &one_thread);
    sitter c(order, 3, &another_thread);
    a.place(1);
    b.place(1);
    c.place(1);
    launch_turn of_a = a.seat.take(*a.seat.next_turn());
    CHECK(b.seat.next_turn() == 1);
    launch_turn of_b = b.seat.take(1);
    CHECK_FALSE(c.seat.next_turn());
    of_b.give_up();
    CHECK_FALSE(c.seat.next_turn());
    of_a.give_up();
    CHECK(c.seat.next_turn() == 1);
    CHECK(c.rings >= 1);
  }

  TEST_CASE("nothing is launched beside what connects peers") {
    const auto order = std::make_shared<launch_order>();
    sitter a(order, 1, &one_thread);
    sitter b(order, 2, &one_thread);
    a.place(1, launch_kind::connecting);
    b.place(1);
    launch_turn connects = a.seat.take(1);
    CHECK_FALSE(b.seat.next_turn());
    connects.give_up();
    launch_turn launches = b.seat.take(*b.seat.next_turn());
    a.place(2, launch_kind::connecting);
    CHECK_FALSE(a.seat.next_turn());
    launches.give_up();
    CHECK(a.seat.next_turn() == 2);
  }

  TEST_CASE("two members of a world on one GPU connect together") {
    const auto order = std::make_shared<launch_order>();
    sitter a(order, 1, &one_thread);
    sitter b(order, 1, &another_thread);
    (void)a.seat.promise(1);
    const std::uint64_t time = b.seat.promise(1);
    CHECK(a.seat.decide(1, time, launch_kind::connecting) == ruling::accepted);
    CHECK(b.seat.decide(1, time, launch_kind::connecting) == ruling::accepted);
    launch_turn first = a.seat.take(*a.seat.next_turn());
    CHECK(b.seat.next_turn() == 1);
  }

  TEST_CASE("a world that ends holds up nothing") {
    const auto order = std::make_shared<launch_order>();
    auto broken = std::make_unique<sitter>(order, 1);
    sitter other(order, 2);
    broken->place(1);
    (void)broken->seat.promise(2);
    launch_turn stuck = broken->seat.take(1);
    other.place(1);
    CHECK_FALSE(other.seat.next_turn());
    const int before = other.rings;
    broken.reset();
    CHECK(other.rings > before);
    CHECK(other.seat.next_turn() == 1);
    // It comes back much later.
    stuck.give_up();
    CHECK(other.seat.places() == 1);
  }

  TEST_CASE("a retracted promise holds up nothing") {
    const auto order = std::make_shared<launch_order>();
    sitter a(order, 1);
    sitter b(order, 2);
    (void)a.seat.promise(1);
    b.place(1);
    CHECK_FALSE(b.seat.next_turn());
    a.seat.forget(1);
    CHECK(b.seat.next_turn() == 1);
    CHECK(a.seat.places() == 0);
  }

  TEST_CASE("law 11: a decision that no honest rank 0 takes is refused") {
    const auto order = std::make_shared<launch_order>();
    sitter a(order, 1);
    const auto kind = launch_kind::operation;
    CHECK(a.seat.decide(1, 5, kind) == ruling::not_promised);
    (void)a.seat.promise(1);
    const std::uint64_t second = a.seat.promise(2);
    CHECK(a.seat.decide(2, second - 1, kind) == ruling::too_early);
    CHECK(a.seat.decide(2, second + launch_order::farthest + 1, kind) == ruling::too_far);
    CHECK(a.seat.decide(2, UINT64_MAX, kind) == ruling::too_far);
    CHECK(a.seat.decide(2, second + launch_order::farthest, kind) == ruling::accepted);
    CHECK(a.seat.decide(2, second + launch_order::farthest, kind) ==
          ruling::not_promised);
    CHECK_FALSE(a.seat.is_credible(0));
  }

  TEST_CASE("a newcomer sees whether the others are orderly and is told when they are") {
    const auto order = std::make_shared<launch_order>();
    sitter first(order, 1);
    CHECK_FALSE(first.seat.is_crowded());
    sitter newcomer(order, 2);
    CHECK(first.rings == 1);
    CHECK(first.seat.is_crowded());
    CHECK_FALSE(newcomer.seat.are_others_orderly());
    first.seat.set_orderly();
    CHECK(newcomer.rings == 1);
    CHECK(newcomer.seat.are_others_orderly());
  }
}

TEST_SUITE("proposals") {
  TEST_CASE("an operation is decided at the latest of the promised times") {
    proposal_table table(3);
    placement pair;
    pair.members = {0, 2};
    const auto number = table.propose(pair, time_point(1s));
    CHECK(table.hear(2, {number, 9}, time_point(2s)).what == answered::waits);
    CHECK(table.hear(1, {number, 9}, time_point(2s)).what == answered::wrong);
    CHECK(table.hear(2, {number, 9}, time_point(2s)).what == answered::wrong);
    const auto found = table.hear(0, {number, 4}, time_point(3s));
    REQUIRE(found.what == answered::decided);
    CHECK(found.decided->latest == 9);
    CHECK(found.took == 2s);
    CHECK(table.empty());
  }

  TEST_CASE("a late promise is known by its number") {
    proposal_table table(2);
    const auto number = table.propose({}, time_point(1s));
    CHECK(table.take_overdue(time_point(1s), 10ms).empty());
    CHECK(table.take_overdue(time_point(2s), 10ms).size() == 1);
    const auto again = table.propose({}, time_point(3s));
    CHECK(again > number);
    CHECK(table.hear(0, {number, 9}, time_point(4s)).what == answered::late);
    CHECK(table.hear(0, {number, 9}, time_point(4s)).what == answered::wrong);
    CHECK(table.hear(0, {again + 1, 9}, time_point(4s)).what == answered::wrong);
  }
}

TEST_SUITE("launch leader") {
  TEST_CASE("a world without places launches at once, when the device is open") {
    heard said;
    launch_leader leader(2, said);
    leader.place_pair(1, request_from(0, 3), {});
    CHECK(said.all.empty());
    leader.hear_made(0, {});
    leader.hear_made(1, {});
    CHECK(said.take<connect_message>().size() == 2);
    leader.open({});
    const auto pairs = said.take<pair_launch>();
    REQUIRE(pairs.size() == 2);
    CHECK(pairs[0].second.place.is_none());
    // This member is the last to hear.
    CHECK(pairs[1].first == 0);
    CHECK(said.all.empty());
    CHECK_FALSE(leader.due());
  }

  TEST_CASE("with places an operation is proposed to those who launch it, and decided") {
    placing w;
    w.leader.place_pair(2, request_from(1, 3), {});
    const auto asked = w.said.take<propose_message>();
    REQUIRE(asked.size() == 2);
    CHECK(asked[0].first == 1);
    CHECK(asked[1].first == 2);
    CHECK(w.said.all.empty());
    const std::uint64_t number = asked[0].second.number;
    w.leader.hear_promise(2, {number, 20}, {});
    w.leader.hear_promise(1, {number, 30}, {});
    const auto launched = w.said.take<pair_launch>();
    REQUIRE(launched.size() == 2);
    CHECK(launched[0].second.place.time == 30);
    CHECK(launched[0].second.place.number == number);
  }

  TEST_CASE("what is not answered in time is retracted and proposed anew") {
    placing w;
    w.leader.place_pair(2, request_from(1, 3), time_point(1s));
    const auto first = w.said.take<propose_message>();
    w.leader.hear_promise(2, {first[0].second.number, 20}, time_point(1s));
    REQUIRE(w.leader.due());
    const time_point late = *w.leader.due();
    CHECK(late <= time_point(1s + 20ms));
    w.leader.tick(late);
    CHECK(w.said.take<retract_message>().size() == 2);
    // Answered after all: not heeded.
    w.leader.hear_promise(1, {first[0].second.number, 20}, late);
    CHECK(w.said.all.empty());
    CHECK(w.said.accused == no_rank);
    REQUIRE(w.leader.due());
    w.leader.tick(*w.leader.due());
    const auto second = w.said.take<propose_message>();
    REQUIRE(second.size() == 2);
    CHECK(second[0].second.number > first[0].second.number);
    CHECK(w.leader.oldest_unplaced(time_point(5s), 3s)->silent == 1);
  }

  TEST_CASE("a far member is waited for longer the next time") {
    placing w;
    w.leader.place_pair(2, request_from(1, 3), time_point(1s));
    const auto asked = w.said.take<propose_message>();
    w.leader.tick(*w.leader.due());
    w.leader.hear_promise(1, {asked[0].second.number, 20}, time_point(1s + 40ms));
    w.leader.tick(*w.leader.due());
    const time_point proposed = time_point(1s + 50ms);
    w.leader.tick(proposed);
    CHECK(w.leader.due() > proposed);
  }

  TEST_CASE("who leaves before its promise takes the operation along") {
    placing w;
    w.leader.place_pair(2, request_from(1, 3), {});
    for (rank_t r = 0; r < 3; ++r) w.leader.enter(r, 1, reduces(), {});
    w.said.all.clear();
    w.leader.leave(1, {});
    CHECK(w.said.take<retract_message>().size() == 3);
    const auto closed = w.said.take<pair_closed>();
    REQUIRE(closed.size() == 1);
    CHECK(closed[0].first == 2);
    CHECK(w.said.take<collective_closed>().size() == 2);
    CHECK_FALSE(w.leader.due());
  }

  TEST_CASE("a pair is closed when another leaves before the device is open") {
    heard said;
    launch_leader leader(3, said);
    leader.place_pair(1, request_from(0, 3), {});
    leader.leave(2, {});
    CHECK(said.take<pair_closed>().size() == 2);
    // Also what comes later.
    leader.place_pair(1, request_from(0, 4), {});
    CHECK(said.take<pair_closed>().size() == 2);
  }

  TEST_CASE("a pair is closed when another leaves while peers are being connected") {
    for (const bool is_retracted : {false, true}) {
      CAPTURE(is_retracted);
      heard said;
      launch_leader leader(3, said);
      leader.use_places();
      leader.place_pair(1, request_from(0, 3), {});
      for (rank_t r = 0; r < 3; ++r) leader.hear_made(r, {});
      if (is_retracted) leader.tick(time_point(1s));
      leader.leave(2, time_point(1s));
      CHECK(said.take<pair_closed>().size() == 2);
    }
  }

  TEST_CASE("rank 0 retracts what it has proposed before it leaves") {
    placing w;
    w.leader.place_pair(2, request_from(1, 3), {});
    const auto asked = w.said.take<propose_message>();
    w.leader.retire();
    CHECK(w.said.take<retract_message>().size() == 2);
    for (const rank_t r : {1, 2})
      w.leader.hear_promise(r, {asked[0].second.number, 9}, {});
    w.leader.place_pair(2, request_from(1, 4), {});
    CHECK(w.said.all.empty());
    CHECK_FALSE(w.leader.due());
  }

  TEST_CASE("time in which no member was asked counts against none") {
    heard said;
    launch_leader leader(3, said);
    leader.use_places();
    leader.place_pair(2, request_from(1, 3), {});
    for (rank_t r = 0; r < 3; ++r) leader.hear_made(r, {});
    for (rank_t r = 0; r < 3; ++r) leader.hear_promise(r, {1, 5}, {});
    leader.open(time_point(90s));
    CHECK_FALSE(leader.oldest_unplaced(time_point(91s), 60s));
    CHECK(leader.oldest_unplaced(time_point(151s), 60s));
  }

  TEST_CASE("law 5: collectives keep their order when one is retracted") {
    placing w;
    for (rank_t r = 0; r < 3; ++r) w.leader.enter(r, 1, reduces(), time_point(1s));
    const time_point late = *w.leader.due();
    for (rank_t r = 0; r < 3; ++r) w.leader.enter(r, 2, reduces(), late - 1ms);
    w.said.all.clear();
    w.leader.tick(late);
    CHECK(w.said.take<retract_message>().size() == 6);
    // Nor is a third proposed before them, but what concerns others is.
    for (rank_t r = 0; r < 3; ++r) w.leader.enter(r, 3, reduces(), late);
    CHECK(w.said.all.empty());
    w.leader.place_pair(2, request_from(1, 3), late);
    CHECK(w.said.take<propose_message>().size() == 2);
    w.leader.tick(late + 10ms);
    w.said.take<retract_message>();
    const auto asked = w.said.take<propose_message>();
    REQUIRE(asked.size() == 9);
    for (std::size_t i = 0; i < 9; i += 3) {
      for (rank_t r = 0; r < 3; ++r) {
        w.leader.hear_promise(r, {asked[i].second.number, 20 + i}, late + 1s);
      }
      const auto launched = w.said.take<collective_launch>();
      REQUIRE(launched.size() == 3);
      CHECK(launched[0].second.number == i / 3 + 1);
    }
  }

  TEST_CASE("memory is given back between what has places") {
    placing w;
    for (rank_t r = 0; r < 3; ++r) w.leader.enter(r, 1, reduces(), {});
    const auto asked = w.said.take<propose_message>();
    collective_terms away;
    away.kind = operation_kind::suspend_device;
    for (rank_t r = 0; r < 3; ++r) w.leader.enter(r, 2, away, {});
    w.leader.place_pair(2, request_from(1, 3), {});
    CHECK(w.said.all.empty());
    for (rank_t r = 0; r < 3; ++r) {
      w.leader.hear_promise(r, {asked[0].second.number, 9}, {});
    }
    // First the sum, then the memory; the message waits until that is back.
    CHECK(w.said.take<collective_launch>().size() == 6);
    CHECK(w.said.all.empty());
    away.kind = operation_kind::resume_device;
    for (rank_t r = 0; r < 3; ++r) w.leader.enter(r, 3, away, {});
    CHECK(w.said.take<collective_launch>().size() == 3);
    CHECK(w.said.take<propose_message>().size() == 2);
  }

  TEST_CASE("law 11: no more than a limited number is proposed at a time") {
    placing w;
    for (std::uint64_t i = 0; i < 3000; ++i) {
      w.leader.place_pair(2, request_from(1, i), {});
    }
    const auto asked = w.said.take<propose_message>();
    CHECK(asked.size() == 2 * launch_leader::most_proposed);
    w.leader.hear_promise(1, {asked[0].second.number, 20}, {});
    w.leader.hear_promise(2, {asked[0].second.number, 20}, {});
    CHECK(w.said.take<propose_message>().size() == 2);
  }

  TEST_CASE("law 11: a promise that no honest member makes is its own fault") {
    placing w;
    w.leader.hear_promise(2, {77, 20}, {});
    CHECK(w.said.accused == 2);
    w.said.accused = no_rank;
    w.leader.place_pair(2, request_from(1, 3), {});
    w.leader.hear_promise(1, {w.said.take<propose_message>()[0].second.number, 1000}, {});
    CHECK(w.said.accused == 1);
  }
}

TEST_SUITE("launch model") {
  TEST_CASE("worlds without a common order wait in a circle") {
    testing::model_options o;
    o.has_order = false;
    CHECK(stuck_runs(o, 20) > 10);
    o.connections = 2;
    o.worlds = 10;
    CHECK(stuck_runs(o, 20) > 5);
    // 64 streams on each GPU: two share one of 32 connections.
    o.worlds = 64;
    o.gpus = 2;
    for (const int connections : {8, 32}) {
      CAPTURE(connections);
      o.connections = connections;
      CHECK(stuck_runs(o, 10) > 5);
    }
  }

  TEST_CASE("worlds with a common order end whatever the seed") {
    testing::model_options o;
    for (const int connections : {1, 2, 8}) {
      o.connections = connections;
      o.worlds = connections == 8 ? 16 : 6;
      check_no_circle(o, connections == 8 ? 8 : 25);
    }
  }

  TEST_CASE("the same while worlds come and break and go") {
    testing::model_options o;
    o.seed = 1000;
    o.breaks = true;
    o.worlds = 8;
    check_no_circle(o, 25);
  }

  TEST_CASE("the same while members stand still") {
    testing::model_options o;
    o.seed = 2000;
    o.breaks = true;
    o.stops = true;
    check_no_circle(o, 25);
    // Without retractions this would be another test.
    testing::launch_model one(o);
    one.run();
    CHECK(one.retractions() > 0);
  }

  TEST_CASE("2 to 64 worlds on 1, 8 and 32 connections end whatever the seed") {
    testing::model_options o;
    o.seed = 100'000;
    check_sweep(o);
  }

  TEST_CASE("2 to 64 worlds end on as many while some break and some stand still") {
    testing::model_options o;
    o.seed = 200'000;
    o.breaks = true;
    o.stops = true;
    check_sweep(o);
  }
}
