#include "manyworlds/testing/simulation.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cerrno>
#include <set>
#include <vector>

#include "io/stream.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "simulation/simulated_node.hpp"

using namespace manyworlds_tests;
using namespace std::chrono_literals;

namespace {

constexpr std::uint16_t echo_port = 7000;

std::vector<std::byte> random_bytes(std::size_t size, std::uint64_t seed) {
  std::vector<std::byte> bytes(size);
  mw::simulated_random(seed).fill(bytes);
  return bytes;
}

mw::task<> echo_once(mw::reactor& home, mw::listener& listening, std::size_t size) {
  const mw::io_result accepted = co_await listening.accept();
  REQUIRE(accepted.ok());
  mw::stream peer(home, mw::socket(home.sockets(), accepted.handle()));
  std::vector<std::byte> bytes(size);
  const mw::io_result read = co_await peer.receive_exactly(bytes);
  CHECK(read.count() == size);
  CHECK((co_await peer.send_all(bytes)).ok());
}

mw::task<> expect_echo(mw::reactor& home, mw::socket_address to,
                       const std::vector<std::byte>& sent) {
  mw::stream peer;
  const mw::io_result connected = co_await mw::stream::connect(home, to, peer);
  REQUIRE(connected.ok());
  CHECK((co_await peer.send_all(sent)).ok());
  std::vector<std::byte> received(sent.size());
  const mw::io_result read = co_await peer.receive_exactly(received);
  CHECK(read.count() == sent.size());
  CHECK(received == sent);
}

struct echo_run {
  std::uint64_t fingerprint = 0;
  mw::duration time{};
  std::uint64_t steps = 0;
};

echo_run run_echo(std::uint64_t seed, std::size_t size,
                  mw::simulation_options options = {}) {
  mw::simulation sim(seed, options);
  simulated_node server(sim, "server");
  simulated_node left(sim, "left");
  simulated_node right(sim, "right");
  mw::listener listening(server.home(), server.process().address(echo_port));
  const std::vector<std::byte> bytes = random_bytes(size, seed);
  const mw::socket_address to = server.process().address(echo_port);
  server.spawn(echo_once(server.home(), listening, size));
  left.spawn(expect_echo(left.home(), to, bytes));
  const bool first =
      sim.run_until([&] { return server.has_ended() && left.has_ended(); });
  INFO(sim.describe());
  REQUIRE(first);
  server.spawn(echo_once(server.home(), listening, size));
  right.spawn(expect_echo(right.home(), to, bytes));
  REQUIRE(sim.run_until([&] { return server.has_ended() && right.has_ended(); }));
  listening.close();
  CHECK(server.process().open_sockets() == 0);
  CHECK(left.process().open_sockets() == 0);
  return {sim.fingerprint(), sim.elapsed(), sim.steps()};
}

mw::task<> sleep_and_note(mw::duration time, mw::time_point& woke) {
  co_await mw::sleep_for(time);
  woke = mw::executor::current()->now();
}

struct counting_work final : mw::work {
  counting_work() noexcept
      : work([](work& w) noexcept {
          static_cast<counting_work&>(w).ran_on = mw::executor::current();
        }) {}
  mw::executor* ran_on = nullptr;
};

mw::task<> post_after(mw::duration time, mw::reactor& other, mw::work& w) {
  co_await mw::sleep_for(time);
  other.post(w);
}

mw::task<> yield_until(const bool& finished) {
  while (!finished) co_await mw::yield();
}

}  // namespace

TEST_SUITE_BEGIN("simulation");

TEST_CASE("the same seed gives the same run") {
  const echo_run first = run_echo(7, 100'000);
  const echo_run second = run_echo(7, 100'000);
  CHECK(first.fingerprint == second.fingerprint);
  CHECK(first.time == second.time);
  CHECK(first.steps == second.steps);
}

TEST_CASE("other seeds give other runs") {
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    seen.insert(run_echo(seed, 1000).fingerprint);
  CHECK(seen.size() == 20);
}

TEST_CASE("bytes arrive whole and in order whatever the seed cuts them into") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    mw::simulated_random choice(seed);
    mw::simulation_options options;
    options.jitter = choice.at_most(2ms);
    options.send_buffer = choice.up_to(20'000);
    options.receive_window = choice.up_to(20'000);
    options.bytes_per_second = choice.one_in(2) ? 0 : 50'000'000;
    options.longest_turn = choice.one_in(2) ? 0ns : 3us;
    const std::size_t size = choice.up_to(60'000);
    // At least a two-hundredth of it fits at a time.
    options.send_buffer = std::max(options.send_buffer, size / 200);
    options.receive_window = std::max(options.receive_window, size / 200);
    run_echo(seed, size, options);
  }
}

TEST_CASE("bandwidth makes large transfers take their time") {
  mw::simulation_options options;
  options.bytes_per_second = 1'000'000;
  // A quarter of a megabyte to and fro, twice.
  CHECK(run_echo(1, 250'000, options).time >= 1s);
  CHECK(run_echo(1, 250'000, options).time < 1100ms);
}

TEST_CASE("a timer expires at its time exactly") {
  mw::simulation sim(3);
  simulated_node node(sim, "node");
  const mw::time_point start = sim.now();
  mw::time_point woke{};
  node.spawn(sleep_and_note(999ms, woke));
  sim.run_for(998ms);
  CHECK_FALSE(node.has_ended());
  sim.run_for(2ms);
  CHECK(woke == start + 999ms);
  CHECK(sim.now() == start + 1000ms);
}

TEST_CASE("work posted to a sleeping reactor of the same process wakes it") {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    mw::simulation sim(seed);
    simulated_node first(sim, "first");
    simulated_node second(sim, first.process());
    counting_work w;
    first.spawn(post_after(5ms, second.home(), w));
    CHECK(sim.run_until([&] { return w.ran_on != nullptr; }));
    CHECK(w.ran_on == &second.home());
    CHECK(sim.elapsed() == 5ms);
  }
}

TEST_CASE("a hang is an answer that names who waits for what") {
  mw::simulation sim(5);
  simulated_node server(sim, "server");
  mw::listener listening(server.home(), mw::socket_address::loopback(echo_port));
  server.spawn(echo_once(server.home(), listening, 1));
  CHECK_FALSE(sim.run_until([&] { return server.has_ended(); }));
  CHECK(sim.is_stuck());
  CHECK(sim.elapsed() == 0s);
  const std::string why = sim.describe();
  CHECK(why.find("server: running, 1 sockets open") != std::string::npos);
  CHECK(why.find("accept on socket") != std::string::npos);
  CHECK(why.find(server.process().address(echo_port).text()) != std::string::npos);
  server.end();
}

TEST_CASE("a wait ends at its limit of virtual time though more is to come") {
  mw::simulation sim(5);
  simulated_node node(sim, "node");
  mw::time_point woke{};
  node.spawn(sleep_and_note(10s, woke));
  CHECK_FALSE(sim.run_until([&] { return node.has_ended(); }, 1s));
  CHECK_FALSE(sim.is_stuck());
  CHECK(sim.elapsed() == 1s);
}

TEST_CASE("time passes for a loop that never waits") {
  mw::simulation sim(5);
  simulated_node node(sim, "node");
  bool finished = false;
  sim.after(10us, [&] { finished = true; });
  node.spawn(yield_until(finished));
  CHECK(sim.run_until([&] { return node.has_ended(); }));
  CHECK(sim.elapsed() < 1ms);
}

TEST_CASE("a reactor that is run from outside lets the others go on while it sleeps") {
  mw::simulation sim(8);
  simulated_node server(sim, "server");
  simulated_node client(sim, "client");
  mw::listener listening(server.home(), server.process().address(echo_port));
  const std::vector<std::byte> bytes = random_bytes(5000, 8);
  server.spawn(echo_once(server.home(), listening, bytes.size()));
  client.spawn(expect_echo(client.home(), server.process().address(echo_port), bytes));
  client.home().run_until([&] { return client.has_ended() && server.has_ended(); });
  CHECK(sim.elapsed() > 0s);
}

TEST_CASE("every process has ports and randomness of its own") {
  mw::simulation sim(4);
  simulated_node a(sim, "a");
  simulated_node b(sim, "b");
  mw::listener at_a(a.home(), mw::socket_address::loopback(echo_port));
  mw::listener at_b(b.home(), mw::socket_address::loopback(echo_port));
  CHECK(at_a.address() != at_b.address());
  CHECK(at_a.address().is_loopback());
  CHECK(a.home().sockets().listen(a.process().address(echo_port), 1).error() ==
        EADDRINUSE);
  CHECK(a.home().sockets().listen(b.process().address(1), 1).error() == EADDRNOTAVAIL);
  std::array<std::byte, 16> from_a{};
  std::array<std::byte, 16> from_b{};
  a.process().fill_random(from_a);
  b.process().fill_random(from_b);
  CHECK(from_a != from_b);
  CHECK(a.process().identity().pid != b.process().identity().pid);
}

TEST_CASE("the trace tells what happened, in order") {
  mw::simulation sim(2);
  std::vector<std::string> lines;
  mw::duration last{};
  sim.trace_to([&](const mw::simulated_event& e) {
    CHECK(e.time >= last);
    last = e.time;
    lines.push_back(e.text());
  });
  simulated_node a(sim, "a");
  mw::listener listening(a.home(), a.process().address(echo_port));
  sim.stop(a.process());
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].find("a: listen") != std::string::npos);
  CHECK(lines[1].find("a: stopped") != std::string::npos);
  sim.resume(a.process());
}

TEST_SUITE_END();
