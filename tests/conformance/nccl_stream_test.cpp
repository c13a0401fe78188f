// Operations among what else streams do: captures, broken devices, stuck neighbours.
// Sources: docs "Using NCCL with CUDA Graphs"; NCCL 2.28.9 src/init.cc commDestroySync
// (graphs hold the communicator); NVIDIA/nccl issue 549.
#include "nccl_support.hpp"

#include <cstdlib>

using namespace conformance;

namespace {

using ints = std::vector<int>;

struct captured {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;

  template <class Call>
  captured(cudaStream_t stream, Call call) {
    REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) ==
            cudaSuccess);
    CHECK(call() == ncclSuccess);
    REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
  }
  void destroy() {
    CHECK(cudaGraphExecDestroy(executable) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  }
};

captured capture_sum(ncclComm_t comm, cudaStream_t stream,
                     const device_array<int>& data) {
  return {stream, [&] {
            return ncclAllReduce(data.data(), data.data(), data.size(), ncclInt, ncclSum,
                                 comm, stream);
          }};
}

SCENARIO_OF_RANKS(sum_in_graph) {
  const auto comm = form(me);
  {
    const device_stream stream;
    const device_array<int> data{ints(4, 1)};
    auto graph = capture_sum(comm, stream, data);
    CHECK(data.values() == ints(4, 1));
    for (int i = 0; i < 3; ++i)
      CHECK(cudaGraphLaunch(graph.executable, stream) == cudaSuccess);
    CHECK(stream.finished());
    CHECK(data.values() == ints(4, 8));
    graph.destroy();
  }
  CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

SCENARIO_OF_RANKS(graph_holds) {
  const auto comm = form(me);
  {
    const device_stream stream;
    const device_array<int> data{ints(4, 1)};
    auto graph = capture_sum(comm, stream, data);
    std::atomic<bool> done{false};
    std::thread aborting([&] {
      ncclCommAbort(comm);
      done = true;
    });
    CHECK_FALSE(within(hanging, [&] { return done.load(); }));
    graph.destroy();
    CHECK(within(limit, [&] { return done.load(); }));
    aborting.join();
  }
}

SCENARIO_OF_RANKS(broken_device) {
  const auto comm = form(me);
  if (me.index() == 1) return me.hear('k');
  {
    const device_stream stream;
    const device_array<int> data{ints(4, 1)};
    CHECK(ncclAllReduce(data.data(), data.data(), 4, ncclInt, ncclSum, comm, stream) ==
          ncclSuccess);
    CHECK(stream.hangs());
    const auto break_device = reinterpret_cast<void (*)(int, cudaError_t)>(
        dlsym(RTLD_DEFAULT, "cudaEmulatedBreakDevice"));
    break_device(0, cudaErrorIllegalAddress);
    CHECK(cudaStreamQuery(stream) == cudaErrorIllegalAddress);
    // Not told as an asynchronous error, but by every call that comes to the device.
    CHECK(state_of(comm) == ncclSuccess);
    CHECK(ncclAllReduce(data.data(), data.data(), 4, ncclInt, ncclSum, comm, stream) ==
          ncclUnhandledCudaError);
    CHECK(aborts_within(comm, limit));
  }
}

// Issue 549: what stands on the stream before it must end first, whosoever it is.
SCENARIO_OF_RANKS(behind_another) {
  const auto stuck = form(me);
  const auto other = form(me);
  if (me.index() == 1) return me.hear('k');
  const device_stream stream;
  const device_array<int> data{ints(4, 1)};
  for (auto comm : {stuck, other})
    CHECK(ncclAllReduce(data.data(), data.data(), 4, ncclInt, ncclSum, comm, stream) ==
          ncclSuccess);
  std::atomic<bool> done{false};
  std::thread aborting([&] {
    ncclCommAbort(other);
    done = true;
  });
  CHECK_FALSE(within(hanging, [&] { return done.load(); }));
  CHECK(aborts_within(stuck, limit));
  CHECK(within(limit, [&] { return done.load(); }));
  aborting.join();
  CHECK(stream.finished());
}

SCENARIO_OF_RANKS(exit_in_flight) {
  const auto comm = form(me);
  cudaStream_t stream;
  void* data = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  REQUIRE(cudaMalloc(&data, 16) == cudaSuccess);
  if (me.index() == 0) ncclAllReduce(data, data, 4, ncclInt, ncclSum, comm, stream);
  me.say('f');
  me.hear('e');
  std::exit(0);
}

}  // namespace

TEST_CASE("a captured operation runs at each launch of its graph" * unseen) {
  crew ranks{sum_in_graph, 2};
  ranks.share_id();
  CHECK(ranks.all_ended_well());
}

TEST_CASE("an abort waits until no graph holds the communicator" * unseen) {
  crew ranks{graph_holds, 2};
  ranks.share_id();
  CHECK(ranks.all_ended_well());
}

TEST_CASE("a broken device fails the next call, and the abort still returns" * unseen) {
  if (!only_emulated()) return;
  crew ranks{broken_device, 2};
  ranks.share_id();
  CHECK(ranks.ended_well(0));
}

TEST_CASE("a program may end with an operation in flight" * unseen) {
  crew ranks{exit_in_flight, 2};
  ranks.share_id();
  for (int i = 0; i < 2; ++i) CHECK(ranks.said(i, 'f'));
  ranks.tell_all('e');
  CHECK(ranks.all_ended_well());
}

TEST_CASE("an abort waits for another communicator's stuck operation on the same stream" *
          unseen) {
  crew ranks{behind_another, 2};
  ranks.share_id();
  ranks.share_id();
  CHECK(ranks.ended_well(0));
}
