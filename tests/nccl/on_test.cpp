#include "manyworlds/nccl/on.hpp"

#include <doctest/doctest.h>

#include <ctime>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "coro/foreign_coroutine.hpp"
#include "io/reactor_fixture.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/sync_wait.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/nccl/device_pool.hpp"
#include "manyworlds/nccl/owned_stream.hpp"
#include "nccl/alone.hpp"
#include "nccl/device_fixture.hpp"

namespace mw = manyworlds;
using mw::engine_kind;
using namespace mw::testing;

namespace {

mw::task<void> wait_for_at_most(mw::device_stream stream, mw::duration limit) {
  co_await mw::within(mw::on(stream), limit);
}

void turn_often(mw::reactor& reactor) {
  for (int i = 0; i < 2000; ++i) (void)reactor.turn();
}

std::string refusal(reactor_fixture& fixture, mw::device_stream stream) {
  try {
    fixture.run(wait_for(stream));
  } catch (const mw::device_error& e) {
    return e.what();
  }
  return "accepted";
}

bool has(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

double cpu_seconds() {
  timespec used = {};
  REQUIRE(::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used) == 0);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

}  // namespace

TEST_SUITE_BEGIN("on");

TEST_CASE("a wait ends when what was enqueued before has, whatever comes after") {
  NEEDS_DEVICE();
  FOR_EACH_ENGINE(kind) {
    reactor_fixture reactor(kind);
    const mw::owned_stream stream(0);
    gate before(stream);
    running<void> wait(reactor, wait_for(stream));
    // Waits of one reactor begin one behind the other.
    const mw::owned_stream other(0);
    reactor.run(wait_for(other));
    CHECK(!wait.ended());
    gate after(stream);
    before.open();
    reactor.run_until([&] { return wait.ended(); });
    CHECK_NOTHROW(wait.result());
    CHECK(!after.is_open());
  }
}

TEST_CASE("a stream of another device than the thread's is awaited") {
  NEEDS_OWN_DEVICES(2);
  reactor_fixture reactor(mw::engine_kind::epoll);
  const mw::owned_stream there(1);
  gate before(there);
  running<void> wait(reactor, wait_for(there));
  turn_often(reactor);
  CHECK(!wait.ended());
  before.open();
  reactor.run_until([&] { return wait.ended(); });
  CHECK_NOTHROW(wait.result());
}

TEST_CASE("waits on several streams end each by its own") {
  NEEDS_DEVICE();
  reactor_fixture reactor(mw::engine_kind::epoll);
  const mw::owned_stream first_stream(0);
  const mw::owned_stream second_stream(0);
  gate first_gate(first_stream);
  gate second_gate(second_stream);
  running<void> first(reactor, wait_for(first_stream));
  running<void> second(reactor, wait_for(second_stream));
  running<void> also_second(reactor, wait_for(second_stream));
  second_gate.open();
  reactor.run_until([&] { return second.ended() && also_second.ended(); });
  CHECK(!first.ended());
  first_gate.open();
  reactor.run_until([&] { return first.ended(); });
}

TEST_CASE("a long wait costs next to no CPU, and ends soon after the stream gets there") {
  NEEDS_DEVICE();
  FOR_EACH_ENGINE(kind) {
    reactor_fixture reactor(kind, 50us);
    const mw::owned_stream stream(0);
    gate busy(stream);
    running<void> wait(reactor, wait_for(stream));
    auto open_later = [](gate& g) -> mw::task<void> {
      co_await mw::sleep_for(400ms);
      g.open();
    };
    running<void> opener(reactor, open_later(busy));
    const double before = cpu_seconds();
    reactor.run_until([&] { return wait.ended(); });
    CHECK(cpu_seconds() - before < 0.2);
  }
}

TEST_CASE("law 4: a cancelled wait ends when the stream has got there") {
  NEEDS_DEVICE();
  FOR_EACH_ENGINE(kind) {
    reactor_fixture reactor(kind);
    const mw::owned_stream stream(0);
    gate busy(stream);
    running<void> wait(reactor, wait_for(stream));
    turn_often(reactor);
    wait.cancel();
    turn_often(reactor);
    CHECK(!wait.ended());
    busy.open();
    reactor.run_until([&] { return wait.ended(); });
    CHECK(wait.cancelled());
  }
}

TEST_CASE("a deadline is told when the stream has got there") {
  NEEDS_DEVICE();
  reactor_fixture reactor(mw::engine_kind::epoll);
  const mw::owned_stream stream(0);
  gate busy(stream);
  running<void> wait(reactor, wait_for_at_most(stream, 1ms));
  auto pass_time = []() -> mw::task<void> { co_await mw::sleep_for(5ms); };
  reactor.run(pass_time());
  CHECK(!wait.ended());
  busy.open();
  reactor.run_until([&] { return wait.ended(); });
  CHECK_THROWS_AS(wait.result(), mw::timed_out);
}

TEST_CASE("a coroutine of another library awaits a stream, and goes on at the reactor") {
  NEEDS_DEVICE();
  reactor_fixture reactor(mw::engine_kind::epoll);
  const mw::owned_stream stream(0);
  gate busy(stream);
  bool at_home = false;
  auto foreign = [](mw::device_stream on, mw::reactor& home,
                    bool& there) -> foreign_coroutine {
    co_await mw::on(on);
    there = home.is_current();
  };
  std::optional<foreign_coroutine> started;
  auto start = [&]() -> mw::task<void> {
    started.emplace(foreign(stream, reactor.get(), at_home));
    co_return;
  };
  reactor.run(start());
  CHECK(!started->is_done());
  busy.open();
  reactor.run_until([&] { return started->is_done(); });
  started->rethrow();
  CHECK(at_home);
}

TEST_CASE("where no reactor runs a wait is refused, and without a stream") {
  NEEDS_DEVICE();
  const mw::owned_stream stream(0);
  CHECK_THROWS_AS(mw::sync_wait(wait_for(stream)), std::logic_error);
  reactor_fixture reactor(mw::engine_kind::epoll);
  CHECK_THROWS_AS(reactor.run(wait_for(mw::device_stream())), std::invalid_argument);
}

TEST_CASE("a stream that is being captured cannot be awaited, and its capture goes on") {
  NEEDS_DEVICE();
  auto* begin = find_in_cudart<cudaError_t(cudaStream_t, cudaStreamCaptureMode)>(
      "cudaStreamBeginCapture");
  auto* end =
      find_in_cudart<cudaError_t(cudaStream_t, cudaGraph_t*)>("cudaStreamEndCapture");
  auto* destroy = find_in_cudart<cudaError_t(cudaGraph_t)>("cudaGraphDestroy");
  REQUIRE((begin && end && destroy));
  reactor_fixture reactor(mw::engine_kind::epoll);
  const mw::owned_stream captured(0);
  const mw::owned_stream other(0);
  REQUIRE(begin(captured.handle(), cudaStreamCaptureModeGlobal) == cudaSuccess);
  CHECK(has(refusal(reactor, captured), "is being captured"));
  CHECK(refusal(reactor, other) == "accepted");
  cudaGraph_t graph = nullptr;
  CHECK(end(captured.handle(), &graph) == cudaSuccess);
  REQUIRE(graph);
  CHECK(destroy(graph) == cudaSuccess);
}

TEST_CASE("alone: a failed device ends waits by its error" * doctest::skip()) {
  auto* break_device = find_in_cudart<void(int, cudaError_t)>("cudaEmulatedBreakDevice");
  REQUIRE((break_device != nullptr));
  reactor_fixture reactor(mw::engine_kind::epoll);
  const mw::owned_stream stream(0);
  gate busy(stream);
  running<void> wait(reactor, wait_for(stream));
  turn_often(reactor);
  busy.await_stream();
  break_device(0, cudaErrorIllegalAddress);
  busy.open();
  reactor.run_until([&] { return wait.ended(); });
  try {
    wait.result();
    FAIL("it ended as if nothing had happened");
  } catch (const mw::device_error& e) {
    CHECK(e.is_sticky());
    CHECK(e.code() == cudaErrorIllegalAddress);
    CHECK(has(e.what(), "cudaErrorIllegalAddress"));
    CHECK(has(e.what(), "end the process"));
  }
  CHECK(has(refusal(reactor, stream), "end the process"));
}

TEST_CASE("a failed device ends waits by its error, and names it sticky") {
  NEEDS_DEVICE();
  if (!is_emulated()) {
    MESSAGE("skipped: only the emulation breaks devices on demand");
    return;
  }
  run_alone("alone: a failed device ends waits by its error", "MANYWORLDS_TEST=1");
}

TEST_CASE("alone: no driver" * doctest::skip()) {
  try {
    const mw::device_pool pool(0);
    FAIL("it was had");
  } catch (const mw::device_error& e) {
    CHECK(e.code() == cudaErrorInsufficientDriver);
    CHECK(has(e.what(), "a device_pool on device 0"));
    CHECK(has(e.what(), "install an NVIDIA driver"));
  }
}

TEST_CASE("without a driver the error says to install one") {
  NEEDS_DEVICE();
  if (!is_emulated()) {
    MESSAGE("skipped: the driver is there");
    return;
  }
  run_alone("alone: no driver", "EMULATED_CUDA_DRIVER=0");
}
