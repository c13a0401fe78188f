// Many members, and many worlds of few: what each process has to do for it, counted.
//
// MANYWORLDS_TEST_CROWD asks for more of them, and shows the figures.
#include "simulation/crowd.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>

using namespace manyworlds_tests;

namespace {

constexpr mw::duration heartbeat = mw::runtime_options{}.heartbeat;
constexpr std::uint64_t periods = 10;

const char* wanted_crowd() { return std::getenv("MANYWORLDS_TEST_CROWD"); }

std::size_t crowd_of(std::size_t at_least) {
  if (!wanted_crowd()) return at_least;
  return std::max<std::size_t>(at_least, std::strtoull(wanted_crowd(), nullptr, 10));
}

void show(const char* what, std::size_t members, const effort& e) {
  if (!wanted_crowd()) return;
  std::printf("%s, %zu: %llu connections, %llu messages, %llu bytes, %llu turns\n", what,
              members, static_cast<unsigned long long>(e.connections),
              static_cast<unsigned long long>(e.messages),
              static_cast<unsigned long long>(e.bytes),
              static_cast<unsigned long long>(e.turns));
}

/// Of twice as many: what does not depend on their number may be less than doubled.
void check_no_faster_than_members(const effort& half, const effort& whole) {
  const auto grows = [](std::uint64_t from, std::uint64_t to) {
    return static_cast<double>(to) / static_cast<double>(from);
  };
  CHECK(grows(half.connections, whole.connections) < 2.2);
  CHECK(grows(half.messages, whole.messages) < 2.2);
  CHECK(grows(half.bytes, whole.bytes) < 2.2);
  CHECK(grows(half.turns, whole.turns) < 2.2);
}

/// One world of all.
struct assembly {
  explicit assembly(std::size_t count) : members(count), all(count) {
    std::vector<std::size_t> processes(count);
    std::iota(processes.begin(), processes.end(), std::size_t{0});
    all.form("assembly", processes);
    REQUIRE(all.sim.run_until([&] { return all.up() == members; }, 60s));
    show("formed", members, all.greatest());
  }
  std::size_t members;
  crowd all;
};

/// One leader, process 0, with a world of two for each of the others.
struct leader_of_worlds {
  explicit leader_of_worlds(std::size_t count) : workers(count), all(count + 1) {
    for (std::size_t w = 1; w <= workers; ++w)
      all.form("edge" + std::to_string(w), {0, w});
    REQUIRE(all.sim.run_until([&] { return all.up() == 2 * workers; }, 60s));
    show("leader of workers formed", workers, all.of(0));
  }
  [[nodiscard]] std::uint64_t most_messages_of_a_worker(std::size_t but = 0) const {
    std::uint64_t most = 0;
    for (std::size_t w = 1; w <= workers; ++w) {
      if (w != but) most = std::max(most, all.of(w).messages);
    }
    return most;
  }
  std::size_t workers;
  crowd all;
};

}  // namespace

TEST_SUITE_BEGIN("simulation");

TEST_CASE("no member's work in forming a world grows faster than the members") {
  const std::size_t most = crowd_of(48);
  effort half = assembly(most / 4).all.greatest();
  for (const std::size_t members : {most / 2, most}) {
    CAPTURE(members);
    const effort whole = assembly(members).all.greatest();
    check_no_faster_than_members(half, whole);
    half = whole;
  }
}

TEST_CASE(
    "an idle member hears each peer once a heartbeat, and of a death once from each") {
  assembly one(crowd_of(48) / 2);
  const std::uint64_t peers = one.members - 1;
  one.all.sim.run_for(1s);
  one.all.forget();
  one.all.sim.run_for(periods * heartbeat);
  show("idle for ten heartbeats", one.members, one.all.greatest());
  for (std::size_t m = 0; m < one.members; ++m) {
    CAPTURE(m);
    CHECK(one.all.of(m).messages >= (periods - 1) * peers);
    CHECK(one.all.of(m).messages <= (periods + 1) * peers);
    CHECK(one.all.of(m).connections == 0);
  }

  const effort beats = one.all.of(0);
  REQUIRE(beats.bytes % beats.messages == 0);
  one.all.pass_over(beats.bytes / beats.messages);
  one.all.forget();
  one.all.kill(one.members / 2);
  REQUIRE(one.all.sim.run_until([&] { return one.all.bereft() == peers; }, 60s));
  // What is still on its way.
  one.all.sim.run_for(heartbeat / 2);
  show("told of a death", one.members, one.all.greatest());
  // By each of the others that is left.
  CHECK(one.all.greatest().messages <= peers - 1);
  CHECK(one.all.greatest().connections == 0);
}

TEST_CASE(
    "a member of two hundred worlds with the same peer sends one heartbeat a period, not "
    "two hundred") {
  constexpr std::size_t worlds = 200;
  crowd pair(2);
  for (std::size_t w = 0; w < worlds; ++w) pair.form("w" + std::to_string(w), {0, 1});
  REQUIRE(pair.sim.run_until([&] { return pair.up() == 2 * worlds; }, 60s));
  pair.sim.run_for(1s);
  pair.forget();
  pair.sim.run_for(periods * heartbeat);
  show("two of 200 worlds, idle for ten heartbeats", 2, pair.greatest());
  CHECK(pair.greatest().messages >= periods - 1);
  CHECK(pair.greatest().messages <= periods + 1);
}

TEST_CASE(
    "a leader's work grows no faster than its worlds of two, a worker's not at all") {
  const std::size_t most = crowd_of(200);
  const leader_of_worlds half(most / 2);
  const leader_of_worlds whole(most);
  check_no_faster_than_members(half.all.of(0), whole.all.of(0));
  CHECK(whole.most_messages_of_a_worker() <= half.most_messages_of_a_worker() + 1);
}

TEST_CASE("a death in one of many worlds of two is no message to any other worker") {
  leader_of_worlds s(crowd_of(200));
  s.all.sim.run_for(1s);
  s.all.forget();
  const std::size_t victim = s.workers / 2;
  s.all.kill(victim);
  REQUIRE(s.all.sim.run_until([&] { return s.all.bereft() == 1; }, 1s));
  CHECK(s.most_messages_of_a_worker(victim) <= 1);  // a beat
  s.all.sim.run_for(periods * heartbeat);
  CHECK(s.most_messages_of_a_worker(victim) <= periods + 1);
  // The dead one has not noticed.
  CHECK(s.all.up() == 2 * s.workers - 1);
}

TEST_SUITE_END();
