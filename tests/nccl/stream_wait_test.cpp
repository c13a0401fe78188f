// How often a waiting reactor asks, in virtual time; streams run in real time.
#include "manyworlds/nccl/stream_wait.hpp"

#include <doctest/doctest.h>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/nccl/on.hpp"
#include "manyworlds/nccl/owned_stream.hpp"
#include "nccl/device_fixture.hpp"
#include "simulation/simulated_node.hpp"
#include "support/eventually.hpp"

using namespace manyworlds_tests;
using namespace std::chrono_literals;
using mw::testing::gate;
using mw::testing::wait_for;

namespace {

mw::task<void> be_busy() {
  for (;;) co_await mw::sleep_for(50us);
}

// The driver is another thread, in real time.
void await_stream(mw::device_stream stream) {
  REQUIRE(mw::testing::eventually(
      [&] { return mw::testing::cuda().cudaStreamQuery(stream.handle()) == cudaSuccess; },
      20s));
}

}  // namespace

TEST_SUITE_BEGIN("stream_wait");

TEST_CASE(
    "law 9: the end of a wait is found soon, however long it was, and asked for rarely") {
  NEEDS_DEVICE();
  const mw::owned_stream stream(0);
  for (const mw::duration waits : {mw::duration(100us), mw::duration(10s)}) {
    mw::simulation sim(1);
    simulated_node node(sim, "a");
    gate busy(stream);
    node.spawn(wait_for(stream));
    sim.run_for(waits);
    CHECK(!node.has_ended());
    // Asleep for an eighth, for 20 us at least and 1 ms at most.
    const auto steps = sim.steps();
    CHECK(steps < (waits == 10s ? 12'000 : 20));

    busy.open();
    await_stream(stream);
    const mw::time_point from = node.home().now();
    CHECK(sim.run_until([&] { return node.has_ended(); }));
    CHECK(node.home().now() - from <= (waits == 10s ? 1ms : 20us));
    node.end();
  }
}

TEST_CASE(
    "law 9: the end of a long wait is found soon by a reactor that is busy as well") {
  NEEDS_DEVICE();
  const mw::owned_stream stream(0);
  mw::simulation sim(1);
  simulated_node node(sim, "a");
  gate busy(stream);
  bool has_ended = false;
  auto wait = [&]() -> mw::task<void> {
    co_await mw::on(stream);
    has_ended = true;
  };
  node.spawn(wait());
  node.spawn(be_busy());
  sim.run_for(1s);
  CHECK(!has_ended);
  busy.open();
  await_stream(stream);
  const mw::time_point from = node.home().now();
  CHECK(sim.run_until([&] { return has_ended; }));
  CHECK(node.home().now() - from <= 1100us);
  node.end();
}
