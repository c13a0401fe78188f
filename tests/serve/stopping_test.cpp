// What serves ends at once when its runtime stops and nothing is open, and has the drain
// where something is.
#include <algorithm>
#include <atomic>
#include <vector>

#include "../world/world_fixture.hpp"
#include "manyworlds/testing/simulation.hpp"
#include "support/eventually.hpp"

namespace manyworlds::world_tests {

TEST_SUITE_BEGIN("serve");

namespace {

world_options edge(const char* name, rank_t rank) {
  return {.name = name, .rank = rank, .size = 2, .form = 30s};
}

task<void> until_told(world& w) {
  std::uint64_t word = 0;
  co_await w.recv(std::span(&word, 1), from(0));
}

}  // namespace

TEST_CASE("an idle keep, connect and accept end at once when their runtime stops") {
  memory_store store;
  node a;
  auto never = [](world&) -> task<void> { co_return; };
  std::vector<started<void>> idle;
  idle.push_back(a.rt.start(keep(a.rt, store, edge("forming", 0), never)));
  world_options impatient = edge("pausing", 0);
  impatient.form = 1ms;
  idle.push_back(a.rt.start(keep(a.rt, store, impatient, never)));
  idle.push_back(a.rt.start(connect(a.rt, store, {.service = "unserved"}, never)));
  idle.push_back(a.rt.start(accept(a.rt, store, {.service = "unasked"}, never)));
  // All of them are at it.
  CHECK(!idle.front().wait_for(300ms));
  const auto begun = clock::now();
  a.rt.stop(1h);
  for (auto& each : idle) {
    CHECK(each.wait_for(10s));
    if (each.is_ready()) CHECK_NOTHROW(each.get());
  }
  CHECK(clock::now() - begun < 10s);
  CHECK(a.log.count("", log_level::error) == 0);
}

TEST_CASE("stop() takes no time of its drain when nothing is open, in virtual time") {
  simulation sim(1);
  memory_store store;
  kept_log log;
  runtime_options simulated;
  simulated.environment = &sim.add_process("alone");
  simulated.log = &log;
  runtime rt(simulated);
  auto never = [](world&) -> task<void> { co_return; };
  std::vector<started<void>> idle;
  idle.push_back(rt.start(keep(rt, store, edge("forming", 0), never)));
  idle.push_back(rt.start(connect(rt, store, {.service = "unserved"}, never)));
  idle.push_back(rt.start(accept(rt, store, {.service = "unasked"}, never)));
  sim.run_for(3s);
  rt.stop(1h);
  REQUIRE(sim.run_until([&] {
    return std::all_of(idle.begin(), idle.end(), [](auto& s) { return s.is_ready(); });
  }));
  CHECK(sim.elapsed() < 3s + 100ms);
}

TEST_CASE("a body that runs has the drain, and hears of it from draining()") {
  memory_store store;
  node a;
  node b;
  std::atomic<int> heard{0};
  std::atomic<bool> runs{false};
  auto heeds = [&](world& w) -> task<void> {
    runs = true;
    try {
      co_await stop_on(until_told(w), b.rt.draining());
    } catch (const stopped&) {
      ++heard;
    }
    // Its own way of ending: one more message.
    co_await until_told(w);
  };
  auto kept = b.rt.start(keep(b.rt, store, edge("edge", 1), heeds));
  world w(a.rt, store, edge("edge", 0));
  CHECK(!a.run(forming(w)));
  REQUIRE(testing::eventually([&] { return runs.load(); }));
  b.rt.stop(1h);
  CHECK(!kept.wait_for(100ms));
  auto send = [&]() -> task<void> {
    const std::uint64_t word = 1;
    co_await w.send(std::span(&word, 1), to(1)).delivered();
  };
  a.run(send());
  b.finish(kept);
  CHECK(heard == 1);
  // Left in order, as without a stop.
  CHECK(a.run(w.broken()).cause == cause::closed);
}

TEST_CASE("a body that does not end is cancelled after the drain, and not before") {
  memory_store store;
  node a;
  node b;
  std::atomic<bool> runs{false};
  auto parked = [&](world& w) -> task<void> {
    runs = true;
    co_await until_told(w);
  };
  auto accepted = a.rt.start(
      accept(a.rt, store, {.service = "held"}, [](world& w) { return w.drained(); }));
  auto connected = b.rt.start(connect(b.rt, store, {.service = "held"}, parked));
  REQUIRE(testing::eventually([&] { return runs.load(); }));
  const auto begun = clock::now();
  b.rt.stop(300ms);
  b.finish(connected);
  CHECK(clock::now() - begun >= 300ms);
  a.rt.stop();
  a.finish(accepted);
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
