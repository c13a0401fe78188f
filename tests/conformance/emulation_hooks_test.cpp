// What the emulated libnccl is built on, and a real libcudart does not have.
#include "stream_hooks.h"

#include <atomic>

#include "again.hpp"
#include "conformance.hpp"

using namespace conformance;

namespace {

// Found by name, so that this program also loads with the real library.
struct hooks {
  template <class Function>
  static Function* find(const char* name) {
    return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
  }

  decltype(&cudaEmulatedEnqueue) enqueue =
      find<decltype(cudaEmulatedEnqueue)>("cudaEmulatedEnqueue");
  decltype(&cudaEmulatedEnqueueKeyed) enqueue_keyed =
      find<decltype(cudaEmulatedEnqueueKeyed)>("cudaEmulatedEnqueueKeyed");
  decltype(&cudaEmulatedGraphsHolding) graphs_holding =
      find<decltype(cudaEmulatedGraphsHolding)>("cudaEmulatedGraphsHolding");
  decltype(&cudaEmulatedBreakDevice) break_device =
      find<decltype(cudaEmulatedBreakDevice)>("cudaEmulatedBreakDevice");
};

struct counts {
  std::atomic<int> runs = 0;
  std::atomic<int> releases = 0;

  static void run(void* self) { ++static_cast<counts*>(self)->runs; }
  static void release(void* self) { ++static_cast<counts*>(self)->releases; }
};

}  // namespace

TEST_SUITE_BEGIN("emulation hooks");

TEST_CASE("work is run in stream order, then released") {
  if (!only_emulated()) return;
  const hooks hook;
  const stream work;
  counts counted;
  gate shut;
  shut.stop(work);
  REQUIRE(hook.enqueue(work, counts::run, &counted, counts::release) == cudaSuccess);
  CHECK(counted.runs == 0);
  shut.open();
  CHECK(cudaStreamSynchronize(work) == cudaSuccess);
  CHECK(counted.runs == 1);
  CHECK(counted.releases == 1);
}

TEST_CASE(
    "captured work is run by each launch, and released with the last of its graphs") {
  if (!only_emulated()) return;
  const hooks hook;
  const stream work;
  counts counted;
  int key = 0;
  REQUIRE(cudaStreamBeginCapture(work, cudaStreamCaptureModeGlobal) == cudaSuccess);
  REQUIRE(hook.enqueue_keyed(work, &key, counts::run, &counted, counts::release) ==
          cudaSuccess);
  CHECK(hook.graphs_holding(&key) == 1);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t program = nullptr;
  REQUIRE(cudaStreamEndCapture(work, &graph) == cudaSuccess);
  REQUIRE(cudaGraphInstantiate(&program, graph, 0) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(cudaGraphLaunch(program, work) == cudaSuccess);
  CHECK(cudaGraphLaunch(program, work) == cudaSuccess);
  CHECK(cudaStreamSynchronize(work) == cudaSuccess);
  CHECK(counted.runs == 2);
  CHECK(counted.releases == 0);
  CHECK(hook.graphs_holding(&key) == 1);
  gate shut;
  shut.stop(work);
  CHECK(cudaGraphLaunch(program, work) == cudaSuccess);
  CHECK(cudaGraphExecDestroy(program) == cudaSuccess);
  CHECK(hook.graphs_holding(&key) == 1);
  shut.open();
  CHECK(eventually([&] { return counted.releases == 1; }));
  CHECK(eventually([&] { return hook.graphs_holding(&key) == 0; }));
  CHECK(counted.runs == 3);
}

TEST_CASE("work enqueued by a key is in no graph when it was not captured") {
  if (!only_emulated()) return;
  const hooks hook;
  const stream work;
  counts counted;
  gate shut;
  shut.stop(work);
  REQUIRE(hook.enqueue_keyed(work, &counted, counts::run, &counted, counts::release) ==
          cudaSuccess);
  CHECK(hook.graphs_holding(&counted) == 0);
  shut.open();
  CHECK(cudaStreamSynchronize(work) == cudaSuccess);
}

TEST_CASE(
    "a capture that fails releases what it holds, and what it refused it does not") {
  if (!only_emulated()) return;
  const hooks hook;
  const stream work;
  counts held;
  counts refused;
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamBeginCapture(work, cudaStreamCaptureModeGlobal) == cudaSuccess);
  REQUIRE(hook.enqueue_keyed(work, &held, counts::run, &held, counts::release) ==
          cudaSuccess);
  CHECK(cudaStreamQuery(work) == cudaErrorStreamCaptureUnsupported);
  CHECK(hook.enqueue(work, counts::run, &refused, counts::release) ==
        cudaErrorStreamCaptureInvalidated);
  CHECK(cudaStreamEndCapture(work, &graph) == cudaErrorStreamCaptureInvalidated);
  CHECK(held.releases == 1);
  CHECK(refused.releases == 0);
  CHECK(hook.graphs_holding(&held) == 0);
  static_cast<void>(cudaGetLastError());
}

TEST_CASE("work that blocks its stream blocks no other") {
  if (!only_emulated()) return;
  const hooks hook;
  const stream blocked;
  const stream free;
  std::promise<void> opened;
  counts counted;
  const auto wait = [](void* until) {
    static_cast<std::promise<void>*>(until)->get_future().wait();
  };
  REQUIRE(hook.enqueue(blocked, wait, &opened, nullptr) == cudaSuccess);
  REQUIRE(hook.enqueue(free, counts::run, &counted, nullptr) == cudaSuccess);
  CHECK(cudaStreamSynchronize(free) == cudaSuccess);
  CHECK(counted.runs == 1);
  CHECK(stays_pending(blocked));
  opened.set_value();
  CHECK(cudaStreamSynchronize(blocked) == cudaSuccess);
  static_cast<void>(cudaGetLastError());
}

TEST_CASE("what is queued when the device breaks is released, and does not run") {
  if (!only_emulated()) return;
  CHECK(run_again("broken by hand", {}) == 0);
}

TEST_CASE("broken by hand" * doctest::skip() * doctest::test_suite("again")) {
  const hooks hook;
  stream work;
  counts counted;
  gate shut;
  shut.stop(work);
  REQUIRE(hook.enqueue(work, counts::run, &counted, counts::release) == cudaSuccess);
  hook.break_device(0, cudaErrorECCUncorrectable);
  CHECK(counted.releases == 1);
  CHECK(hook.enqueue(work, counts::run, &counted, counts::release) ==
        cudaErrorECCUncorrectable);
  shut.open();
  CHECK(cudaStreamDestroy(work.release()) == cudaErrorECCUncorrectable);
  CHECK(counted.runs == 0);
  CHECK(counted.releases == 1);
}

TEST_SUITE_END();
