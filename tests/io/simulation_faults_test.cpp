#include "simulation/connected_pair.hpp"

#include <cerrno>

using namespace manyworlds_tests;
using namespace std::chrono_literals;

TEST_SUITE_BEGIN("simulation faults");

TEST_CASE("the peers of a killed process read the end or a reset, as the seed has it") {
  int ends = 0;
  int resets = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    std::optional<mw::io_result> near_read;
    std::optional<mw::io_result> far_read;
    connected_pair pair(seed);
    pair.a.spawn(receive_one(pair.near, near_read));
    pair.b.spawn(receive_one(pair.far, far_read));
    pair.sim.run_for(1ms);
    pair.sim.kill(pair.b.process());
    REQUIRE(pair.sim.run_until([&] { return near_read.has_value(); }, 1ms));
    (near_read->ok() ? ends : resets) += 1;
    CHECK((near_read->ok() ? near_read->count() == 0 : near_read->error() == ECONNRESET));
    // The dead see nothing until they are released.
    pair.sim.run_for(1s);
    CHECK_FALSE(far_read.has_value());
    pair.sim.release(pair.b.process());
    REQUIRE(pair.sim.run_until([&] { return far_read.has_value(); }));
    CHECK(far_read->error() == ECANCELED);
    CHECK(pair.b.process().open_sockets() == 0);
  }
  CHECK(ends > 5);
  CHECK(resets > 5);
}

TEST_CASE("a kill at any step of a transfer ends it for the survivor") {
  mw::simulation_options options;
  options.send_buffer = 4000;
  options.receive_window = 4000;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    for (std::uint64_t at = 1; at < 60; at += 3) {
      CAPTURE(seed);
      CAPTURE(at);
      std::optional<int> sent;
      std::size_t count = 0;
      std::optional<int> end;
      connected_pair pair(seed, options);
      pair.sim.at_step(pair.sim.steps() + at,
                       [&pair] { pair.sim.kill(pair.a.process()); });
      pair.a.spawn(send_bytes(pair.near, 100'000, sent));
      pair.b.spawn(receive_all(pair.far, count, end));
      INFO(pair.sim.describe());
      REQUIRE(pair.sim.run_until([&] { return end.has_value(); }, 1s));
      CHECK(count <= 100'000);
    }
  }
}

TEST_CASE("a process that succeeds a killed one listens on the same port") {
  connected_pair pair(1);
  pair.sim.kill(pair.b.process());
  simulated_node successor(pair.sim, pair.sim.add_process("c", pair.b.process()));
  mw::listener listening(successor.home(), successor.process().address(port));
  CHECK(listening.address() == pair.b.process().address(port));
  mw::stream near;
  mw::stream far;
  std::optional<int> error;
  successor.spawn(accept_one(successor.home(), listening, far));
  pair.a.spawn(connect_to(pair.a.home(), listening.address(), near, error));
  REQUIRE(pair.sim.run_until([&] { return error == 0 && far.is_open(); }));
}

TEST_CASE("bytes for a stopped process wait for it, until its sender must wait too") {
  mw::simulation_options options;
  options.send_buffer = 2000;
  options.receive_window = 3000;
  std::size_t count = 0;
  std::optional<int> end;
  std::optional<int> sent;
  connected_pair pair(6, options);
  pair.b.spawn(receive_all(pair.far, count, end));
  pair.sim.run_for(1ms);
  pair.sim.stop(pair.b.process());
  pair.a.spawn(send_bytes(pair.near, 5001, sent));
  pair.sim.run_for(10s);
  CHECK(count == 0);
  CHECK_FALSE(sent.has_value());
  pair.sim.resume(pair.b.process());
  REQUIRE(pair.sim.run_until([&] { return count == 5001; }));
  CHECK(sent == 0);

  pair.sim.stop(pair.b.process());
  sent.reset();
  pair.a.spawn(send_bytes(pair.near, 5000, sent));
  pair.sim.run_for(10s);
  CHECK(sent == 0);
}

TEST_CASE("a stopped process is connected to by its kernel") {
  mw::simulation sim(1);
  simulated_node a(sim, "a");
  simulated_node b(sim, "b");
  mw::listener listening(b.home(), b.process().address(port));
  sim.stop(b.process());
  mw::stream s;
  std::optional<int> error;
  a.spawn(connect_to(a.home(), b.process().address(port), s, error));
  REQUIRE(sim.run_until([&] { return error == 0; }, 1ms));
}

TEST_CASE("a slow reader holds its sender to its rate") {
  mw::simulation_options options;
  options.send_buffer = 2000;
  options.receive_window = 2000;
  std::size_t count = 0;
  std::optional<int> end;
  std::optional<int> sent;
  connected_pair pair(2, options);
  pair.sim.slow_reader(pair.b.process(), 100);
  const mw::time_point start = pair.sim.now();
  pair.b.spawn(receive_all(pair.far, count, end));
  pair.a.spawn(send_bytes(pair.near, 100'000, sent));
  pair.sim.run_for(500ms);
  CHECK(count >= 48'000);
  CHECK(count <= 50'100);
  REQUIRE(pair.sim.run_until([&] { return count == 100'000; }, 10s));
  CHECK(pair.sim.now() - start >= 990ms);
  CHECK(sent == 0);
}

TEST_SUITE_END();
