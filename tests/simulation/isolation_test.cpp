// One world breaks, and no other notices (law 2).
#include <doctest/doctest.h>

#include <array>
#include <vector>

#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/world/outcome.hpp"
#include "simulation/scenario.hpp"
#include "simulation/world_cluster.hpp"

using namespace manyworlds_tests;

namespace {

constexpr std::size_t worlds = 10;

struct edge_story {
  std::uint64_t rounds = 0;
  mw::world_state state = mw::world_state::described;
  mw::cause cause = mw::cause::none;
};

mw::task<void> edge(member_process& self, std::size_t number, mw::rank_t rank,
                    edge_story& told) {
  mw::world_options options;
  options.name = mw::world_name("edge" + std::to_string(number));
  options.rank = rank;
  options.size = 2;
  mw::world w(self.runtime(), *self.rendezvous, options);
  const auto formed = co_await mw::outcome(w);
  std::vector<std::uint64_t> numbers(1000 + 9000 * (number % 2));
  while (formed) {
    told.state = w.state();
    numbers.assign(numbers.size(), told.rounds);
    mw::failure f;
    if (rank == 0) {
      co_await mw::sleep_for(4ms);
      const auto sent = co_await mw::outcome(w.send(numbers, mw::to{1}).delivered());
      f = sent.error();
    } else {
      const auto got = co_await mw::outcome(w.recv(numbers, mw::from{0}));
      f = got.error();
    }
    told.state = w.state();
    told.cause = f.cause;
    if (f) co_return;
    ++told.rounds;
  }
}

/// One leader with ten workers, one world with each, all in one scope.
struct star {
  explicit star(std::uint64_t seed) : all(seed) {
    leader = &all.add("leader");
    auto lead = [](star& s) -> mw::task<void> {
      auto body = [&s](mw::scope& scope) -> mw::task<void> {
        for (std::size_t i = 0; i < worlds; ++i) {
          scope.spawn(edge(*s.leader, i, 0, s.at_leader[i]));
        }
        co_return;
      };
      co_await mw::scope::run(body);
    };
    for (std::size_t i = 0; i < worlds; ++i) {
      workers.push_back(&all.add("worker" + std::to_string(i)));
      workers.back()->start(edge(*workers.back(), i, 1, at_worker[i]));
    }
    leader->start(lead(*this));
    all.run_for(2s);
  }

  void check_that_only(std::size_t broken, mw::cause cause) {
    CHECK(at_leader[broken].state == mw::world_state::broken);
    CHECK(at_leader[broken].cause == cause);
    std::array<std::uint64_t, worlds> before{};
    for (std::size_t i = 0; i < worlds; ++i) before[i] = at_worker[i].rounds;
    all.run_for(1s);
    for (std::size_t i = 0; i < worlds; ++i) {
      if (i == broken) continue;
      CAPTURE(i);
      CHECK(at_leader[i].state == mw::world_state::up);
      CHECK(at_worker[i].state == mw::world_state::up);
      CHECK(at_leader[i].cause == mw::cause::none);
      CHECK(at_worker[i].rounds > before[i] + 100);
    }
    const seed_report report = finished(all);
    for (const std::string& each : report.complaints) FAIL_CHECK(each);
  }

  std::array<edge_story, worlds> at_leader;
  std::array<edge_story, worlds> at_worker;
  cluster all;
  member_process* leader = nullptr;
  std::vector<member_process*> workers;
};

}  // namespace

TEST_SUITE_BEGIN("simulation");

TEST_CASE("ten worlds in one scope, one peer is killed: nine are up at every member") {
  star s(1);
  s.all.kill(*s.workers[3]);
  s.all.run_for(1s);
  s.check_that_only(3, mw::cause::peer_died);
}

TEST_CASE("ten worlds in one scope, one peer is stopped: nine are up at every member") {
  star s(2);
  s.all.stop(*s.workers[7], 60s);
  s.all.run_for(6s);
  s.check_that_only(7, mw::cause::silent_peer);
}

TEST_CASE("a stopped peer breaks its world after the silence limit, not before") {
  star s(3);
  s.all.stop(*s.workers[5], 60s);
  s.all.run_for(4500ms);
  CHECK(s.at_leader[5].state == mw::world_state::up);
  s.all.run_for(1s);
  s.check_that_only(5, mw::cause::silent_peer);
}

TEST_SUITE_END();
