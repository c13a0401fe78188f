// Many worlds on the same GPUs, with few hardware connections: their operations end
// whatever order the members start them in.
#include <signal.h>

#include <atomic>
#include <list>
#include <optional>
#include <semaphore>

#include "gpu_worlds.hpp"

using namespace manyworlds;
using namespace manyworlds::nccl_tests;

namespace {

using floats = std::vector<float>;

/// False in the process that has so few connections, where the test is to go on. How many
/// there are is read once a process; the second name is the real library's.
bool runs_with_connections(int connections) {
  if (testing::skips_without_device()) return true;
  if (testing::own_process::is_here()) return false;
  const std::string number = std::to_string(connections);
  testing::own_process alone(
      doctest::getContextOptions()->currentTest->m_name,
      {"EMULATED_CUDA_CONNECTIONS=" + number, "CUDA_DEVICE_MAX_CONNECTIONS=" + number});
  CHECK(alone.succeeded());
  return true;
}

world_options numbered(world_options options, int number) {
  options.name = world_name(("crowded " + std::to_string(number)).c_str());
  options.on_device.most_multiprocessors = 1;
  return options;
}

/// Whether the runtime's dump says that the world has places in its GPU's order.
bool has_places(const member& m, const world& w) {
  const std::string all = m.rt.dump();
  const auto begin = all.find(std::string(w.name().view()) + "@");
  REQUIRE_MESSAGE(begin != all.npos, all);
  const std::string own = all.substr(begin, all.find("crowded", begin + 1) - begin);
  REQUIRE_MESSAGE(own.find("on device") != own.npos, all);
  return own.find("places held in the order") != own.npos;
}

/// Sums and messages in turn, each checked. Members of equal number start together.
task<void> use(member& m, world& w, device_stream stream, int rounds) {
  const int others = w.size() - 1;
  device_buffer<float> given(m.pool, 64, stream);
  device_buffer<float> into(m.pool, 64, stream);
  const floats ones(64, 1);
  co_await copy(given.view(), ones);
  for (int i = 0; i < rounds; ++i) {
    co_await w.all_reduce(given, into, sum);
    CHECK((co_await m.read(into)) == floats(64, static_cast<float>(others + 1)));
    if (m.rank > 1) continue;
    co_await when_all(w.send(given, to{1 - m.rank}), w.recv(into, from{1 - m.rank}));
    CHECK((co_await m.read(into)) == ones);
  }
}

/// All worlds busy at once; the ranks begin with opposite ends of the list.
task<void> use_all(member& m, world_options options, int count, int rounds) {
  std::list<owned_stream> streams;
  std::vector<world> worlds;
  for (int i = 0; i < count; ++i) {
    streams.emplace_back(m.device);
    worlds.emplace_back(m.rt, m.st, numbered(options, i));
  }
  for (world& w : worlds) co_await w;
  for (world& w : worlds) co_await w.device_ready();
  co_await scope::run([&](scope& s) -> task<void> {
    auto stream = streams.begin();
    for (int i = 0; i < count; ++i, ++stream) {
      const int chosen = m.rank == 0 ? i : count - 1 - i;
      s.spawn(use(m, worlds[static_cast<std::size_t>(chosen)], *stream, rounds));
    }
    co_return;
  });
  for (world& w : worlds) CHECK(has_places(m, w));
  for (world& w : worlds) co_await w.leave();
}

/// One that is formed, used, and broken or left, again and again, beside the others.
task<void> come_and_go(member& m, world_options options, int number, int times) {
  for (int i = 0; i < times; ++i) {
    world w(m.rt, m.st, numbered(options, 100 * number + i));
    co_await w;
    const owned_stream stream(m.device);
    const auto once = [&]() -> task<void> { co_await use(m, w, stream, 2); };
    co_await once();
    if (i % 2 == 0) {
      co_await w.leave();
      continue;
    }
    auto met = co_await outcome(w.barrier());
    CHECK((met || w.state() == world_state::broken));
    if (m.rank == 0) w.fail("enough");
    co_await w.drained();
  }
}

task<void> use_while_others_come(member& m, world_options options) {
  world steady(m.rt, m.st, numbered(options, 0));
  co_await steady;
  const owned_stream stream(m.device);
  co_await scope::run([&](scope& s) -> task<void> {
    s.spawn(use(m, steady, stream, 30));
    for (int i = 1; i <= 3; ++i) s.spawn(come_and_go(m, options, i, 3));
    co_return;
  });
  co_await steady.leave();
}

}  // namespace

TEST_SUITE("crowded gpu") {
  TEST_CASE("a world that is alone on its GPUs has no places and gets them in company") {
    NEEDS_DEVICES(2);
    run_members(2, [](member& m, world_options options) -> task<void> {
      world first(m.rt, m.st, numbered(options, 1));
      co_await first;
      const owned_stream stream(m.device);
      co_await use(m, first, stream, 3);
      CHECK_FALSE(has_places(m, first));
      {
        world second(m.rt, m.st, numbered(options, 2));
        co_await second;
        co_await use(m, second, stream, 3);
        co_await use(m, first, stream, 3);
        CHECK(has_places(m, second));
        CHECK(has_places(m, first));
        co_await second.leave();
      }
      // Until its next epoch.
      co_await use(m, first, stream, 3);
      CHECK(has_places(m, first));
      co_await first.leave();
    });
  }

  TEST_CASE("six worlds end on one connection in whatever order members start") {
    if (runs_with_connections(1)) return;
    NEEDS_DEVICES(2);
    run_members(2, [](member& m, world_options options) -> task<void> {
      co_await use_all(m, options, 6, 5);
    });
  }

  TEST_CASE("sixteen worlds end on eight connections in whatever order members start") {
    if (runs_with_connections(8)) return;
    NEEDS_DEVICES(2);
    run_members(2, [](member& m, world_options options) -> task<void> {
      co_await use_all(m, options, 16, 3);
    });
  }

  TEST_CASE("four worlds of three members end on one connection") {
    if (runs_with_connections(1)) return;
    NEEDS_DEVICES(3);
    run_members(3, [](member& m, world_options options) -> task<void> {
      co_await use_all(m, options, 4, 5);
    });
  }

  TEST_CASE("worlds end on one connection where the reactor launches") {
    if (runs_with_connections(1)) return;
    NEEDS_DEVICES(2);
    world_options base;
    base.on_device.launch = launch_on::reactor;
    run_members(
        2,
        [](member& m, world_options options) -> task<void> {
          co_await use_all(m, options, 4, 5);
        },
        base);
  }

  TEST_CASE("worlds that come and break and go hold up none on one connection") {
    if (runs_with_connections(1)) return;
    NEEDS_DEVICES(2);
    run_members(2, use_while_others_come);
  }
}
