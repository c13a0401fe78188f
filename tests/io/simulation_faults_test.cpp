#include <doctest/doctest.h>

#include <array>
#include <cerrno>
#include <optional>
#include <vector>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/io/simulation.hpp"
#include "manyworlds/io/stream.hpp"
#include "simulation/simulated_node.hpp"

using namespace manyworlds_tests;
using namespace std::chrono_literals;

namespace {

constexpr std::uint16_t port = 7000;

mw::task<> accept_one(mw::reactor& home, mw::listener& listening, mw::stream& into) {
  const mw::io_result accepted = co_await listening.accept();
  if (accepted.ok()) into = mw::stream(home, mw::socket(home.sockets(), accepted.handle()));
}

mw::task<> connect_to(mw::reactor& home, mw::socket_address to, mw::stream& into,
                      std::optional<int>& error) {
  const mw::io_result result = co_await mw::stream::connect(home, to, into);
  error = result.error();
}

mw::task<> receive_one(mw::stream& from, std::optional<mw::io_result>& result) {
  std::array<std::byte, 1> byte{};
  result = co_await from.receive_some(byte);
}

mw::task<> receive_all(mw::stream& from, std::size_t& count, std::optional<int>& end) {
  std::array<std::byte, 4096> bytes{};
  for (;;) {
    const mw::io_result read = co_await from.receive_some(bytes);
    if (read.ok()) count += read.count();
    if (read.ok() && read.count() > 0) continue;
    end = read.error();
    co_return;
  }
}

mw::task<> send_bytes(mw::stream& to, std::size_t size, std::optional<int>& error) {
  const std::vector<std::byte> bytes(size);
  const mw::io_result sent = co_await to.send_all(bytes);
  error = sent.error();
}

/// Two processes with one connection.
struct connected_pair {
  explicit connected_pair(std::uint64_t seed, mw::simulation_options options = {})
      : sim(seed, options), a(sim, "a"), b(sim, "b"), at_b(b.home(), b.process().address(port)) {
    b.spawn(accept_one(b.home(), at_b, far));
    std::optional<int> error;
    a.spawn(connect_to(a.home(), b.process().address(port), near, error));
    REQUIRE(sim.run_until([&] { return near.is_open() && far.is_open() && a.has_ended(); }));
  }
  ~connected_pair() {
    a.end();
    b.end();
  }

  mw::simulation sim;
  simulated_node a;
  simulated_node b;
  mw::listener at_b;
  mw::stream near;
  mw::stream far;
};

}  // namespace

TEST_SUITE_BEGIN("simulation faults");

TEST_CASE("a port where nobody listens refuses") {
  mw::simulation sim(1);
  simulated_node a(sim, "a");
  simulated_node b(sim, "b");
  mw::stream s;
  std::optional<int> error;
  a.spawn(connect_to(a.home(), b.process().address(port), s, error));
  REQUIRE(sim.run_until([&] { return error.has_value(); }));
  CHECK(error == ECONNREFUSED);
  CHECK(a.process().open_sockets() == 0);
}

TEST_CASE("an address of nobody is unreachable") {
  mw::simulation sim(1);
  simulated_node a(sim, "a");
  mw::stream s;
  std::optional<int> error;
  a.spawn(connect_to(a.home(), *mw::socket_address::parse("127.0.1.77:7000"), s, error));
  REQUIRE(sim.run_until([&] { return error.has_value(); }));
  CHECK(error == EHOSTUNREACH);
}

TEST_CASE("a closed stream is read to its end by the peer") {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    connected_pair pair(seed);
    std::optional<int> sent;
    std::size_t count = 0;
    std::optional<int> end;
    pair.a.spawn(send_bytes(pair.near, 10'000, sent));
    pair.b.spawn(receive_all(pair.far, count, end));
    REQUIRE(pair.sim.run_until([&] { return sent.has_value(); }));
    pair.near.close();
    REQUIRE(pair.sim.run_until([&] { return end.has_value(); }));
    CHECK(end == 0);
    CHECK(count == 10'000);
  }
}

TEST_CASE("who closes without having read all resets its peer") {
  connected_pair pair(3);
  std::optional<int> sent;
  pair.a.spawn(send_bytes(pair.near, 100, sent));
  pair.sim.run_for(1s);
  pair.far.close();
  std::optional<mw::io_result> read;
  pair.a.spawn(receive_one(pair.near, read));
  REQUIRE(pair.sim.run_until([&] { return read.has_value(); }));
  CHECK(read->error() == ECONNRESET);
}

TEST_CASE("a send to a closed socket succeeds once and is answered by a reset") {
  connected_pair pair(3);
  pair.far.close();
  pair.sim.run_for(1s);
  std::optional<int> first;
  pair.a.spawn(send_bytes(pair.near, 1, first));
  pair.sim.run_for(1s);
  CHECK(first == 0);
  std::optional<int> second;
  pair.a.spawn(send_bytes(pair.near, 1, second));
  pair.sim.run_for(1s);
  CHECK(second == EPIPE);
}

TEST_CASE("the peers of a killed process read the end or a reset, as the seed has it") {
  int ends = 0;
  int resets = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    connected_pair pair(seed);
    std::optional<mw::io_result> near_read;
    std::optional<mw::io_result> far_read;
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
      connected_pair pair(seed, options);
      std::optional<int> sent;
      std::size_t count = 0;
      std::optional<int> end;
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
  connected_pair pair(6, options);
  std::size_t count = 0;
  std::optional<int> end;
  std::optional<int> sent;
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

TEST_CASE("a partition is silent, and what it held arrives when it heals") {
  connected_pair pair(2);
  std::size_t count = 0;
  std::optional<int> end;
  std::optional<int> sent;
  pair.b.spawn(receive_all(pair.far, count, end));
  pair.sim.partition(pair.a.process(), pair.b.process());
  pair.a.spawn(send_bytes(pair.near, 1000, sent));
  pair.sim.run_for(1h);
  CHECK(sent == 0);
  CHECK(count == 0);
  CHECK_FALSE(end.has_value());
  pair.near.close();
  pair.sim.heal(pair.a.process(), pair.b.process());
  REQUIRE(pair.sim.run_until([&] { return end.has_value(); }, 1s));
  CHECK(count == 1000);
  CHECK(end == 0);
}

TEST_CASE("one direction may be blocked alone") {
  connected_pair pair(2);
  pair.sim.block(pair.a.process(), pair.b.process());
  std::optional<mw::io_result> at_a;
  std::optional<mw::io_result> at_b;
  std::optional<int> sent_a;
  std::optional<int> sent_b;
  pair.a.spawn(receive_one(pair.near, at_a));
  pair.b.spawn(receive_one(pair.far, at_b));
  pair.a.spawn(send_bytes(pair.near, 1, sent_a));
  pair.b.spawn(send_bytes(pair.far, 1, sent_b));
  pair.sim.run_for(1s);
  CHECK(at_a.has_value());
  CHECK_FALSE(at_b.has_value());
}

TEST_CASE("a connect across a partition ends at its limit, or succeeds once it heals") {
  mw::simulation sim(9);
  simulated_node a(sim, "a");
  simulated_node b(sim, "b");
  mw::listener listening(b.home(), b.process().address(port));
  sim.partition(a.process(), b.process());
  mw::stream first;
  std::optional<int> error;
  a.spawn(connect_to(a.home(), b.process().address(port), first, error));
  REQUIRE(sim.run_until([&] { return error.has_value(); }));
  CHECK(error == ETIMEDOUT);
  CHECK(sim.elapsed() >= 127s);
  CHECK(sim.elapsed() < 128s);

  error.reset();
  mw::stream second;
  a.spawn(connect_to(a.home(), b.process().address(port), second, error));
  sim.run_for(10s);
  CHECK_FALSE(error.has_value());
  sim.heal(a.process(), b.process());
  REQUIRE(sim.run_until([&] { return error.has_value(); }, 17s));
  CHECK(error == 0);
}

TEST_CASE("a lost link stalls the connections there are, not new ones") {
  connected_pair pair(2);
  std::optional<mw::io_result> old_read;
  std::optional<int> old_sent;
  pair.sim.lose_link(pair.a.process(), pair.b.process());
  pair.b.spawn(receive_one(pair.far, old_read));
  pair.a.spawn(send_bytes(pair.near, 1, old_sent));
  mw::stream near;
  mw::stream far;
  std::optional<int> error;
  pair.b.spawn(accept_one(pair.b.home(), pair.at_b, far));
  pair.a.spawn(connect_to(pair.a.home(), pair.at_b.address(), near, error));
  pair.sim.run_for(1min);
  CHECK(far.is_open());
  CHECK_FALSE(old_read.has_value());
  pair.sim.heal(pair.a.process(), pair.b.process());
  REQUIRE(pair.sim.run_until([&] { return old_read.has_value(); }, 1ms));
  CHECK(old_read->count() == 1);
}

TEST_CASE("a cut resets both ends") {
  connected_pair pair(2);
  std::optional<mw::io_result> at_a;
  std::optional<mw::io_result> at_b;
  pair.a.spawn(receive_one(pair.near, at_a));
  pair.b.spawn(receive_one(pair.far, at_b));
  pair.sim.run_for(1ms);
  pair.sim.cut(pair.a.process(), pair.b.process());
  REQUIRE(pair.sim.run_until([&] { return at_a && at_b; }, 1ms));
  CHECK(at_a->error() == ECONNRESET);
  CHECK(at_b->error() == ECONNRESET);
}

TEST_CASE("a slow reader holds its sender to its rate") {
  mw::simulation_options options;
  options.send_buffer = 2000;
  options.receive_window = 2000;
  connected_pair pair(2, options);
  pair.sim.slow_reader(pair.b.process(), 100);
  std::size_t count = 0;
  std::optional<int> end;
  std::optional<int> sent;
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

TEST_CASE("a delay holds for one direction and is exact without jitter") {
  connected_pair pair(2);
  pair.sim.delay(pair.a.process(), pair.b.process(), 30ms);
  std::optional<mw::io_result> read;
  std::optional<int> sent;
  pair.b.spawn(receive_one(pair.far, read));
  pair.a.spawn(send_bytes(pair.near, 1, sent));
  const mw::time_point start = pair.sim.now();
  REQUIRE(pair.sim.run_until([&] { return read.has_value(); }));
  CHECK(pair.sim.now() - start == 30ms);
}

TEST_CASE("a full backlog makes connects wait") {
  mw::simulation sim(9);
  simulated_node a(sim, "a");
  simulated_node b(sim, "b");
  mw::network& net = b.home().sockets();
  const mw::io_result listening = net.listen(b.process().address(port), 1);
  REQUIRE(listening.ok());
  std::array<mw::stream, 2> streams;
  std::array<std::optional<int>, 2> errors;
  a.spawn(connect_to(a.home(), b.process().address(port), streams[0], errors[0]));
  a.spawn(connect_to(a.home(), b.process().address(port), streams[1], errors[1]));
  sim.run_for(20s);
  CHECK(errors[0].has_value() != errors[1].has_value());
  net.close(listening.handle());
  sim.run_for(20s);
  // Nobody listens any more when the waiting one knocks again.
  CHECK((errors[0] == ECONNREFUSED || errors[1] == ECONNREFUSED));
  a.end();
}

TEST_SUITE_END();
