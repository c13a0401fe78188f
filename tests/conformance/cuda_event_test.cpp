// Events: research/nccl.md 6.3, traps 2 to 4.
#include "conformance.hpp"

using namespace conformance;

TEST_SUITE_BEGIN("cuda event");

// cuda_runtime_api.h, cudaEventRecord: before the first record an event is an empty set
// of work.
TEST_CASE("an event never recorded is complete" * unseen) {
  if (!has_devices(1)) return;
  const event never;
  CHECK(cudaEventQuery(never) == cudaSuccess);
  CHECK(cudaEventSynchronize(never) == cudaSuccess);
}

// PyTorch c10/cuda/CUDAGraphsC10Utils and ATen CUDAEvent::query: "ignore and clear the
// error if not ready".
TEST_CASE("a pending event sets the thread's last error, which is not sticky" * unseen) {
  if (!has_devices(1)) return;
  const stream work;
  const event end;
  gate shut;
  shut.stop(work);
  REQUIRE(cudaEventRecord(end, work) == cudaSuccess);
  CHECK(cudaEventQuery(end) == cudaErrorNotReady);
  auto elsewhere = cudaErrorUnknown;
  std::thread([&] { elsewhere = cudaPeekAtLastError(); }).join();
  CHECK(elsewhere == cudaSuccess);
  CHECK(cudaPeekAtLastError() == cudaErrorNotReady);
  CHECK(cudaGetLastError() == cudaErrorNotReady);
  CHECK(cudaGetLastError() == cudaSuccess);
  shut.open();
  CHECK(outcome_of(end) == cudaSuccess);
}

// cuda_runtime_api.h, cudaEventRecord: overwrites the previously captured state.
TEST_CASE("an event stands for its last record only" * unseen) {
  if (!has_devices(1)) return;
  const stream idle;
  const stream held;
  const event recorded;
  gate shut;
  shut.stop(held);
  REQUIRE(cudaEventRecord(recorded, held) == cudaSuccess);
  CHECK(stays_pending(recorded));
  REQUIRE(cudaEventRecord(recorded, idle) == cudaSuccess);
  CHECK(outcome_of(recorded) == cudaSuccess);
  REQUIRE(cudaEventRecord(recorded, held) == cudaSuccess);
  CHECK(stays_pending(recorded));
  shut.open();
  CHECK(outcome_of(recorded) == cudaSuccess);
}

// cuda_runtime_api.h, cudaEventRecord: "use the most recently captured state at the time
// of the API call".
TEST_CASE("a stream waits for the record that was there when it was told to" * unseen) {
  if (!has_devices(1)) return;
  const stream first;
  const stream second;
  const stream waiting;
  const event recorded;
  REQUIRE(cudaEventRecord(recorded, first) == cudaSuccess);
  CHECK(outcome_of(recorded) == cudaSuccess);
  REQUIRE(cudaStreamWaitEvent(waiting, recorded, 0) == cudaSuccess);
  gate shut;
  shut.stop(second);
  REQUIRE(cudaEventRecord(recorded, second) == cudaSuccess);
  CHECK(outcome_of_all_on(waiting) == cudaSuccess);

  // And of the later record, although a third one comes before that is reached.
  REQUIRE(cudaStreamWaitEvent(waiting, recorded, 0) == cudaSuccess);
  REQUIRE(cudaEventRecord(recorded, first) == cudaSuccess);
  CHECK(outcome_of(recorded) == cudaSuccess);
  CHECK(stays_pending(waiting));
  shut.open();
  CHECK(outcome_of_all_on(waiting) == cudaSuccess);
}

TEST_CASE("to wait for an event never recorded is no wait" * unseen) {
  if (!has_devices(1)) return;
  const stream waiting;
  const event never;
  REQUIRE(cudaStreamWaitEvent(waiting, never, 0) == cudaSuccess);
  CHECK(outcome_of_all_on(waiting) == cudaSuccess);
}

TEST_CASE("a stream that waits for another sees what the other wrote" * unseen) {
  if (!has_devices(1)) return;
  const stream writer;
  const stream reader;
  const event written;
  const pinned<unsigned char> bytes(2);
  gate shut;
  shut.stop(writer);
  REQUIRE(cudaMemsetAsync(bytes.data(), 3, 1, writer) == cudaSuccess);
  REQUIRE(cudaEventRecord(written, writer) == cudaSuccess);
  REQUIRE(cudaStreamWaitEvent(reader, written, 0) == cudaSuccess);
  REQUIRE(cudaMemcpyAsync(bytes.data() + 1, bytes.data(), 1, cudaMemcpyDefault, reader) ==
          cudaSuccess);
  CHECK(stays_pending(reader));
  shut.open();
  CHECK(outcome_of_all_on(reader) == cudaSuccess);
  CHECK(static_cast<int>(bytes[1]) == 3);
}

// cuda_runtime_api.h, cudaEventDestroy: may be called before the event is complete.
TEST_CASE("an event destroyed while pending is still waited for" * unseen) {
  if (!has_devices(1)) return;
  const stream held;
  const stream waiting;
  event destroyed;
  gate shut;
  shut.stop(held);
  REQUIRE(cudaEventRecord(destroyed, held) == cudaSuccess);
  REQUIRE(cudaStreamWaitEvent(waiting, destroyed, 0) == cudaSuccess);
  CHECK(cudaEventDestroy(destroyed.release()) == cudaSuccess);
  CHECK(stays_pending(waiting));
  shut.open();
  CHECK(outcome_of_all_on(waiting) == cudaSuccess);
}

// cuda_runtime_api.h, cudaEventElapsedTime.
TEST_CASE("time passes between events made for it, and is refused of others" * unseen) {
  if (!has_devices(1)) return;
  const stream work;
  const event begin(cudaEventDefault);
  const event end(cudaEventDefault);
  const event untimed;
  float milliseconds = -1;
  CHECK(cudaEventElapsedTime(&milliseconds, begin, end) ==
        cudaErrorInvalidResourceHandle);
  REQUIRE(cudaEventRecord(begin, work) == cudaSuccess);
  gate shut;
  shut.stop(work);
  REQUIRE(cudaEventRecord(end, work) == cudaSuccess);
  REQUIRE(cudaEventRecord(untimed, work) == cudaSuccess);
  CHECK(cudaEventElapsedTime(&milliseconds, begin, end) == cudaErrorNotReady);
  shut.open();
  CHECK(outcome_of(untimed) == cudaSuccess);
  CHECK(cudaEventElapsedTime(&milliseconds, begin, end) == cudaSuccess);
  CHECK(milliseconds >= 0);
  CHECK(cudaEventElapsedTime(&milliseconds, begin, untimed) ==
        cudaErrorInvalidResourceHandle);
  static_cast<void>(cudaGetLastError());
}

// cuda_runtime_api.h, cudaEventRecord: event and stream must be on the same context.
TEST_CASE("an event is recorded on streams of its own device only" * unseen) {
  if (!has_devices(2)) return;
  const event of_first;
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  {
    const stream of_second;
    CHECK(cudaEventRecord(of_first, of_second) == cudaErrorInvalidResourceHandle);
    CHECK(cudaGetLastError() == cudaErrorInvalidResourceHandle);
    CHECK(cudaStreamWaitEvent(of_second, of_first, 0) == cudaSuccess);
  }
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
}

TEST_SUITE_END();
