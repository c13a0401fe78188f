#include "simulation/connected_pair.hpp"

#include <cerrno>

using namespace manyworlds_tests;
using namespace std::chrono_literals;

TEST_SUITE_BEGIN("simulated network");

TEST_CASE("a port without a listener refuses") {
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

TEST_CASE("an address of no process is unreachable") {
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
    std::optional<int> sent;
    std::size_t count = 0;
    std::optional<int> end;
    connected_pair pair(seed);
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
  std::optional<int> sent;
  connected_pair pair(3);
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

TEST_CASE("a partition is silent, and what it held arrives when it heals") {
  std::size_t count = 0;
  std::optional<int> end;
  std::optional<int> sent;
  connected_pair pair(2);
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
  std::optional<mw::io_result> at_a;
  std::optional<mw::io_result> at_b;
  std::optional<int> sent_a;
  std::optional<int> sent_b;
  connected_pair pair(2);
  pair.sim.block(pair.a.process(), pair.b.process());
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
  std::optional<mw::io_result> old_read;
  std::optional<int> old_sent;
  connected_pair pair(2);
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
  std::optional<mw::io_result> at_a;
  std::optional<mw::io_result> at_b;
  connected_pair pair(2);
  pair.a.spawn(receive_one(pair.near, at_a));
  pair.b.spawn(receive_one(pair.far, at_b));
  pair.sim.run_for(1ms);
  pair.sim.cut(pair.a.process(), pair.b.process());
  REQUIRE(pair.sim.run_until([&] { return at_a && at_b; }, 1ms));
  CHECK(at_a->error() == ECONNRESET);
  CHECK(at_b->error() == ECONNRESET);
}

TEST_CASE("a delay holds for one direction and is exact without jitter") {
  std::optional<mw::io_result> read;
  std::optional<int> sent;
  connected_pair pair(2);
  pair.sim.delay(pair.a.process(), pair.b.process(), 30ms);
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
  // No listener is left when the waiting one knocks again.
  CHECK((errors[0] == ECONNREFUSED || errors[1] == ECONNREFUSED));
  a.end();
}

TEST_SUITE_END();
