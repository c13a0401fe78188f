// Captures and graphs: research/nccl.md 6.3, trap 6.
#include "conformance.hpp"

using namespace conformance;

namespace {

cudaStreamCaptureStatus status_of(cudaStream_t asked) {
  auto status = cudaStreamCaptureStatusNone;
  REQUIRE(cudaStreamIsCapturing(asked, &status) == cudaSuccess);
  return status;
}

// What a call gives in another thread that has this mode.
template <class Call>
cudaError_t in_another_thread(cudaStreamCaptureMode mode, Call call) {
  auto result = cudaErrorUnknown;
  std::thread([&] {
    cudaThreadExchangeStreamCaptureMode(&mode);
    result = call();
  }).join();
  return result;
}

cudaError_t end_capture(cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  const auto result = cudaStreamEndCapture(stream, &graph);
  CHECK((graph != nullptr) == (result == cudaSuccess));
  if (graph != nullptr) cudaGraphDestroy(graph);
  static_cast<void>(cudaGetLastError());
  return result;
}

// A graph that is ready to be launched.
class program {
 public:
  explicit program(cudaStream_t captured) {
    REQUIRE(cudaStreamEndCapture(captured, &graph_) == cudaSuccess);
    REQUIRE(cudaGraphInstantiate(&program_, graph_, 0) == cudaSuccess);
  }
  program(const program&) = delete;
  ~program() {
    cudaGraphExecDestroy(program_);
    cudaGraphDestroy(graph_);
  }
  operator cudaGraphExec_t() const { return program_; }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t program_ = nullptr;
};

}  // namespace

TEST_SUITE_BEGIN("cuda capture");

// cuda_runtime_api.h, cudaStreamBeginCapture.
TEST_CASE("what is captured runs at each launch, and not before" * unseen) {
  if (!has_devices(1)) return;
  const stream captured;
  const stream launching;
  const pinned<unsigned char> bytes(3);
  bytes[0] = 1;
  REQUIRE(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal) == cudaSuccess);
  CHECK(status_of(captured) == cudaStreamCaptureStatusActive);
  REQUIRE(cudaMemcpyAsync(&bytes[2], &bytes[1], 1, cudaMemcpyDefault, captured) ==
          cudaSuccess);
  REQUIRE(cudaMemcpyAsync(&bytes[1], &bytes[0], 1, cudaMemcpyDefault, captured) ==
          cudaSuccess);
  const program shift(captured);
  CHECK(status_of(captured) == cudaStreamCaptureStatusNone);
  CHECK(outcome_of_all_on(captured) == cudaSuccess);
  CHECK(static_cast<int>(bytes[1]) == 0);
  REQUIRE(cudaGraphLaunch(shift, launching) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(launching) == cudaSuccess);
  CHECK(static_cast<int>(bytes[1]) == 1);
  CHECK(static_cast<int>(bytes[2]) == 0);
  REQUIRE(cudaGraphLaunch(shift, launching) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(launching) == cudaSuccess);
  CHECK(static_cast<int>(bytes[2]) == 1);
}

// cuda_runtime_api.h, cudaGraphExecDestroy: a launch in flight is not cut short.
TEST_CASE("a graph destroyed in flight runs to its end" * unseen) {
  if (!has_devices(1)) return;
  const stream captured;
  const stream launching;
  const pinned<unsigned char> byte;
  gate shut;
  {
    REQUIRE(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal) == cudaSuccess);
    REQUIRE(cudaMemsetAsync(byte.data(), 4, 1, captured) == cudaSuccess);
    const program fill(captured);
    shut.stop(launching);
    REQUIRE(cudaGraphLaunch(fill, launching) == cudaSuccess);
  }
  shut.open();
  CHECK(cudaStreamSynchronize(launching) == cudaSuccess);
  CHECK(static_cast<int>(byte[0]) == 4);
}

// CUDA programming guide, "Cross-stream dependencies and events".
TEST_CASE("an event brings another stream into the capture, and back" * unseen) {
  if (!has_devices(1)) return;
  const stream origin;
  const stream branch;
  const event fork;
  const event join;
  const pinned<unsigned char> bytes(2);
  REQUIRE(cudaStreamBeginCapture(origin, cudaStreamCaptureModeGlobal) == cudaSuccess);
  REQUIRE(cudaMemsetAsync(&bytes[0], 8, 1, origin) == cudaSuccess);
  REQUIRE(cudaEventRecord(fork, origin) == cudaSuccess);
  REQUIRE(cudaStreamWaitEvent(branch, fork, 0) == cudaSuccess);
  CHECK(status_of(branch) == cudaStreamCaptureStatusActive);
  REQUIRE(cudaMemcpyAsync(&bytes[1], &bytes[0], 1, cudaMemcpyDefault, branch) ==
          cudaSuccess);
  REQUIRE(cudaEventRecord(join, branch) == cudaSuccess);
  REQUIRE(cudaStreamWaitEvent(origin, join, 0) == cudaSuccess);
  const program both(origin);
  CHECK(status_of(branch) == cudaStreamCaptureStatusNone);
  REQUIRE(cudaGraphLaunch(both, origin) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(origin) == cudaSuccess);
  CHECK(static_cast<int>(bytes[1]) == 8);
}

TEST_CASE("a branch that was not joined fails the capture" * unseen) {
  if (!has_devices(1)) return;
  const stream origin;
  const stream branch;
  const event fork;
  const pinned<unsigned char> byte;
  REQUIRE(cudaStreamBeginCapture(origin, cudaStreamCaptureModeGlobal) == cudaSuccess);
  REQUIRE(cudaMemsetAsync(byte.data(), 1, 1, origin) == cudaSuccess);
  REQUIRE(cudaEventRecord(fork, origin) == cudaSuccess);
  REQUIRE(cudaStreamWaitEvent(branch, fork, 0) == cudaSuccess);
  REQUIRE(cudaMemsetAsync(byte.data(), 2, 1, branch) == cudaSuccess);
  CHECK(end_capture(origin) == cudaErrorStreamCaptureUnjoined);
}

TEST_CASE("a captured stream cannot wait for work outside of the capture" * unseen) {
  if (!has_devices(1)) return;
  const stream origin;
  const stream outside;
  const event recorded;
  gate shut;
  shut.stop(outside);
  REQUIRE(cudaEventRecord(recorded, outside) == cudaSuccess);
  REQUIRE(cudaStreamBeginCapture(origin, cudaStreamCaptureModeGlobal) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(origin, recorded, 0) == cudaErrorStreamCaptureIsolation);
  CHECK(end_capture(origin) == cudaErrorStreamCaptureInvalidated);
}

// CUDA programming guide, "Prohibited and unhandled operations".
TEST_CASE("to ask a captured stream, or event, spoils the capture" * unseen) {
  if (!has_devices(1)) return;
  const stream origin;
  const event inside;
  auto mode = cudaStreamCaptureModeRelaxed;
  REQUIRE(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess);

  REQUIRE(cudaStreamBeginCapture(origin, cudaStreamCaptureModeRelaxed) == cudaSuccess);
  CHECK(cudaStreamSynchronize(origin) == cudaErrorStreamCaptureUnsupported);
  CHECK(status_of(origin) == cudaStreamCaptureStatusInvalidated);
  CHECK(end_capture(origin) == cudaErrorStreamCaptureInvalidated);

  REQUIRE(cudaStreamBeginCapture(origin, cudaStreamCaptureModeRelaxed) == cudaSuccess);
  REQUIRE(cudaEventRecord(inside, origin) == cudaSuccess);
  CHECK(cudaEventQuery(inside) == cudaErrorCapturedEvent);
  CHECK(end_capture(origin) == cudaErrorStreamCaptureInvalidated);
  CHECK(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess);
  CHECK(mode == cudaStreamCaptureModeRelaxed);
}

// cuda_runtime_api.h, cudaThreadExchangeStreamCaptureMode.
TEST_CASE(
    "a global capture is spoilt by another thread's query, unless its mode is local" *
    unseen) {
  if (!has_devices(1)) return;
  const stream origin;
  const stream other;
  const event end;
  REQUIRE(cudaEventRecord(end, other) == cudaSuccess);
  CHECK(outcome_of(end) == cudaSuccess);
  const auto query = [&] { return cudaEventQuery(end); };

  REQUIRE(cudaStreamBeginCapture(origin, cudaStreamCaptureModeGlobal) == cudaSuccess);
  CHECK(in_another_thread(cudaStreamCaptureModeThreadLocal, query) == cudaSuccess);
  CHECK(in_another_thread(cudaStreamCaptureModeRelaxed, query) == cudaSuccess);
  CHECK(status_of(origin) == cudaStreamCaptureStatusActive);
  CHECK(in_another_thread(cudaStreamCaptureModeGlobal, query) ==
        cudaErrorStreamCaptureUnsupported);
  CHECK(status_of(origin) == cudaStreamCaptureStatusInvalidated);
  CHECK(end_capture(origin) == cudaErrorStreamCaptureInvalidated);

  REQUIRE(cudaStreamBeginCapture(origin, cudaStreamCaptureModeThreadLocal) ==
          cudaSuccess);
  CHECK(in_another_thread(cudaStreamCaptureModeGlobal, query) == cudaSuccess);
  CHECK(end_capture(origin) == cudaSuccess);
}

TEST_CASE("the thread that captures may not allocate, unless the capture is relaxed" *
          unseen) {
  if (!has_devices(1)) return;
  const stream origin;
  void* memory = nullptr;
  REQUIRE(cudaStreamBeginCapture(origin, cudaStreamCaptureModeThreadLocal) ==
          cudaSuccess);
  CHECK(cudaMalloc(&memory, 16) == cudaErrorStreamCaptureUnsupported);
  CHECK(end_capture(origin) == cudaErrorStreamCaptureInvalidated);
  REQUIRE(cudaStreamBeginCapture(origin, cudaStreamCaptureModeRelaxed) == cudaSuccess);
  CHECK(cudaMalloc(&memory, 16) == cudaSuccess);
  CHECK(cudaFree(memory) == cudaSuccess);
  CHECK(end_capture(origin) == cudaSuccess);
}

TEST_CASE("a capture is ended where it began, by the thread that began it" * unseen) {
  if (!has_devices(1)) return;
  const stream origin;
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(origin, &graph) != cudaSuccess);
  REQUIRE(cudaStreamBeginCapture(origin, cudaStreamCaptureModeGlobal) == cudaSuccess);
  CHECK(cudaStreamBeginCapture(origin, cudaStreamCaptureModeGlobal) != cudaSuccess);
  CHECK(in_another_thread(cudaStreamCaptureModeGlobal, [&] {
          return end_capture(origin);
        }) == cudaErrorStreamCaptureWrongThread);
  CHECK(end_capture(origin) == cudaSuccess);
  CHECK(cudaStreamBeginCapture(cudaStreamLegacy, cudaStreamCaptureModeGlobal) ==
        cudaErrorStreamCaptureUnsupported);
  static_cast<void>(cudaGetLastError());
}

// cuda_runtime_api.h, cudaStreamIsCapturing.
TEST_CASE("the legacy stream cannot be used while a blocking stream is captured" *
          unseen) {
  if (!has_devices(1)) return;
  const stream blocking(cudaStreamDefault);
  const pinned<unsigned char> byte;
  auto status = cudaStreamCaptureStatusNone;
  REQUIRE(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed) == cudaSuccess);
  CHECK(cudaStreamIsCapturing(cudaStreamLegacy, &status) ==
        cudaErrorStreamCaptureImplicit);
  CHECK(status_of(blocking) == cudaStreamCaptureStatusActive);
  CHECK(cudaMemsetAsync(byte.data(), 1, 1, cudaStreamLegacy) ==
        cudaErrorStreamCaptureImplicit);
  CHECK(end_capture(blocking) == cudaErrorStreamCaptureInvalidated);
}

TEST_SUITE_END();
