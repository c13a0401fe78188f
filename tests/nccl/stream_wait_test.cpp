// What a reactor does while coroutines of its wait for streams: nothing.
#include "manyworlds/detail/stream_wait.hpp"

#include <doctest/doctest.h>

#include "io/reactor_fixture.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/nccl/copy.hpp"
#include "manyworlds/nccl/device_buffer.hpp"
#include "manyworlds/nccl/on.hpp"
#include "manyworlds/nccl/owned_stream.hpp"
#include "nccl/device_fixture.hpp"
#include "nccl/freeing_thread.hpp"
#include "nccl/own_process.hpp"
#include "support/entries.hpp"
#include "support/eventually.hpp"

namespace mw = manyworlds;
using mw::engine_kind;
using namespace mw::testing;
using namespace std::chrono_literals;

namespace {

mw::task<void> sleep(mw::duration time) { co_await mw::sleep_for(time); }

}  // namespace

TEST_SUITE_BEGIN("stream_wait");

TEST_CASE("law 7: a reactor sleeps while its coroutines wait for streams") {
  NEEDS_DEVICE();
  FOR_EACH_ENGINE(kind) {
    reactor_fixture reactor(kind);
    const mw::owned_stream stream(0);
    gate busy(stream);
    running<void> first(reactor, wait_for(stream));
    running<void> second(reactor, wait_for(stream));
    const auto before = reactor.get().turns();
    reactor.run(sleep(300ms));
    CHECK(reactor.get().turns() - before < 20);
    CHECK_FALSE(first.ended());
    busy.open();
    reactor.run_until([&] { return first.ended() && second.ended(); });
  }
}

TEST_CASE("law 2: a wait that cannot even begin holds up nothing else on the reactor") {
  NEEDS_DEVICE();
  if (!runs_alone({"EMULATED_CUDA_DRIVER_LOCK=1"})) return;
  reactor_fixture reactor(mw::engine_kind::epoll);
  const mw::owned_stream stream(0);
  const mw::device_pool pool(0);
  mw::device_buffer<float> x(pool, 100, stream);
  std::vector<float> numbers(100);
  const auto copies = [&]() -> mw::task<void> { co_await mw::copy(numbers, x); };
  {
    freeing_thread application;
    gate busy(stream);
    application.begin();
    CHECK_FALSE(application.has_ended_after(100ms));
    running<void> wait(reactor, wait_for(stream));
    running<void> copy(reactor, copies());
    reactor.run(sleep(50ms));
    CHECK_FALSE(application.has_ended_after(0ms));
    CHECK_FALSE(wait.ended());
    CHECK_FALSE(copy.ended());
    busy.open();
    reactor.run_until([&] { return wait.ended() && copy.ended(); });
    CHECK_NOTHROW(wait.result());
    CHECK_NOTHROW(copy.result());
  }
}

TEST_CASE("what is said as cudaStreamPerThread is the stream of the thread that waits") {
  NEEDS_DEVICE();
  reactor_fixture reactor(mw::engine_kind::epoll);
  const mw::device_stream own(cudaStreamPerThread);
  const mw::device_pool pool(0);
  const mw::owned_stream other(0);
  mw::device_buffer<float> x(pool, 1000, other);
  const auto there_and_back = [&]() -> mw::task<void> {
    const std::vector<float> numbers = counting(1000);
    std::vector<float> back(1000);
    co_await mw::on(other);
    co_await mw::copy(x.view(own), numbers);
    co_await mw::copy(back, x.view(own));
    CHECK(back == numbers);
  };
  reactor.run(there_and_back());
  gate busy(own);
  running<void> wait(reactor, wait_for(own));
  reactor.run(sleep(20ms));
  CHECK_FALSE(wait.ended());
  busy.open();
  reactor.run_until([&] { return wait.ended(); });
}

TEST_CASE("a wait on the default stream is for the device of the thread that awaits") {
  NEEDS_OWN_DEVICES(2);
  reactor_fixture reactor(mw::engine_kind::epoll);
  const mw::device_stream legacy(cudaStreamLegacy);
  REQUIRE(cuda().cudaSetDevice(1) == cudaSuccess);
  gate busy(legacy);
  running<void> there(reactor, wait_for(legacy));
  reactor.run(sleep(1ms));
  REQUIRE(cuda().cudaSetDevice(0) == cudaSuccess);
  reactor.run(wait_for(legacy));
  CHECK_FALSE(there.ended());
  busy.open();
  reactor.run_until([&] { return there.ended(); });
}

TEST_CASE("a reactor that ends takes its threads along") {
  NEEDS_DEVICE();
  const mw::owned_stream stream(0);
  std::size_t before = 0;
  for (int times = 0; times < 20; ++times) {
    reactor_fixture reactor(mw::engine_kind::epoll);
    reactor.run(wait_for(stream));
    if (times == 0) before = entries("/proc/self/task");
  }
  CHECK(eventually([&] { return entries("/proc/self/task") < before; }));
}
