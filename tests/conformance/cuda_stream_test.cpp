// Streams: research/nccl.md 6.3, traps 1 and 4.
#include <vector>

#include "again.hpp"
#include "conformance.hpp"

using namespace conformance;

TEST_SUITE_BEGIN("cuda stream");

// CUDA programming guide, "Streams": commands of a stream execute in order, the host goes
// on.
TEST_CASE("a stream does its work in order, after the calls have returned" * unseen) {
  if (!has_devices(1)) return;
  const stream work;
  const pinned<unsigned char> bytes(2);
  gate shut;
  shut.stop(work);
  REQUIRE(cudaMemsetAsync(bytes.data(), 1, 2, work) == cudaSuccess);
  REQUIRE(cudaMemsetAsync(bytes.data(), 2, 1, work) == cudaSuccess);
  CHECK(cudaStreamQuery(work) == cudaErrorNotReady);
  CHECK(cudaGetLastError() == cudaErrorNotReady);
  CHECK(static_cast<int>(bytes[0]) == 0);
  shut.open();
  CHECK(cudaStreamSynchronize(work) == cudaSuccess);
  CHECK(cudaStreamQuery(work) == cudaSuccess);
  CHECK(static_cast<int>(bytes[0]) == 2);
  CHECK(static_cast<int>(bytes[1]) == 1);
}

// CUDA programming guide, "Streams": different streams may execute concurrently.
TEST_CASE("a stream that is held up holds up no other" * unseen) {
  if (!has_devices(1)) return;
  const stream held;
  const stream free;
  const pinned<unsigned char> byte;
  gate shut;
  shut.stop(held);
  REQUIRE(cudaMemsetAsync(byte.data(), 7, 1, free) == cudaSuccess);
  CHECK(outcome_of_all_on(free) == cudaSuccess);
  CHECK(static_cast<int>(byte[0]) == 7);
  CHECK(stays_pending(held));
}

// CUDA runtime API, "Stream synchronization behavior", legacy default stream.
TEST_CASE("the legacy stream waits for blocking streams, and they for it" * unseen) {
  if (!has_devices(1)) return;
  const stream blocking(cudaStreamDefault);
  const stream other(cudaStreamDefault);
  const stream fence;
  const pinned<unsigned char> bytes(2);
  const event after_legacy;
  const event after_other;
  gate shut;
  shut.stop(blocking);
  REQUIRE(cudaMemsetAsync(bytes.data(), 1, 2, cudaStreamLegacy) == cudaSuccess);
  REQUIRE(cudaEventRecord(after_legacy, cudaStreamLegacy) == cudaSuccess);
  REQUIRE(cudaMemsetAsync(bytes.data(), 2, 1, other) == cudaSuccess);
  REQUIRE(cudaEventRecord(after_other, other) == cudaSuccess);
  REQUIRE(cudaMemsetAsync(bytes.data() + 1, 9, 1, fence) == cudaSuccess);
  CHECK(outcome_of_all_on(fence) == cudaSuccess);
  CHECK(stays_pending(after_legacy));
  CHECK(stays_pending(after_other));
  CHECK(static_cast<int>(bytes[0]) == 0);
  CHECK(static_cast<int>(bytes[1]) == 9);
  shut.open();
  CHECK(outcome_of(after_other) == cudaSuccess);
  CHECK(static_cast<int>(bytes[0]) == 2);
  CHECK(static_cast<int>(bytes[1]) == 1);
}

TEST_CASE("a non-blocking stream and the legacy stream do not wait for each other" *
          unseen) {
  if (!has_devices(1)) return;
  const stream held;
  gate shut;
  shut.stop(held);
  CHECK(outcome_of_all_on(cudaStreamLegacy) == cudaSuccess);
  shut.open();
  CHECK(outcome_of_all_on(held) == cudaSuccess);

  gate legacy_shut;
  legacy_shut.stop(cudaStreamLegacy);
  CHECK(outcome_of_all_on(held) == cudaSuccess);
  CHECK(stays_pending(cudaStreamLegacy));
  legacy_shut.open();
  CHECK(outcome_of_all_on(cudaStreamLegacy) == cudaSuccess);
}

// cuda_runtime_api.h, cudaStreamDestroy: returns at once, resources go when the work is
// done.
TEST_CASE("a stream destroyed with work returns at once, and the work is done" * unseen) {
  if (!has_devices(1)) return;
  stream destroyed;
  const pinned<unsigned char> byte;
  const event end;
  gate shut;
  shut.stop(destroyed);
  REQUIRE(cudaMemsetAsync(byte.data(), 5, 1, destroyed) == cudaSuccess);
  REQUIRE(cudaEventRecord(end, destroyed) == cudaSuccess);
  CHECK(cudaStreamDestroy(destroyed.release()) == cudaSuccess);
  CHECK(stays_pending(end));
  shut.open();
  CHECK(outcome_of(end) == cudaSuccess);
  CHECK(static_cast<int>(byte[0]) == 5);
}

TEST_CASE("a stream that was destroyed is an invalid handle" * unseen) {
  // The real library may as well crash.
  if (!only_emulated()) return;
  stream destroyed;
  const auto stale = destroyed.release();
  CHECK(cudaStreamDestroy(stale) == cudaSuccess);
  CHECK(cudaStreamQuery(stale) == cudaErrorInvalidResourceHandle);
  CHECK(cudaStreamDestroy(stale) == cudaErrorInvalidResourceHandle);
  CHECK(cudaStreamDestroy(cudaStreamLegacy) == cudaErrorInvalidResourceHandle);
}

// cuda_runtime_api.h, cudaStreamCreateWithPriority: out of range is clamped, not refused.
TEST_CASE("a stream says what it was made with" * unseen) {
  if (!has_devices(1)) return;
  int least = -1;
  int greatest = 1;
  REQUIRE(cudaDeviceGetStreamPriorityRange(&least, &greatest) == cudaSuccess);
  CHECK(least == 0);
  CHECK(greatest <= 0);
  cudaStream_t made = nullptr;
  REQUIRE(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, -1000) ==
          cudaSuccess);
  int priority = 1;
  unsigned flags = 0;
  int device = -1;
  CHECK(cudaStreamGetPriority(made, &priority) == cudaSuccess);
  CHECK(cudaStreamGetFlags(made, &flags) == cudaSuccess);
  CHECK(cudaStreamGetDevice(made, &device) == cudaSuccess);
  CHECK(priority == greatest);
  CHECK(flags == cudaStreamNonBlocking);
  CHECK(device == 0);
  CHECK(cudaStreamDestroy(made) == cudaSuccess);
  CHECK(cudaStreamCreateWithFlags(&made, 0x80) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
}

// CUDA runtime API, "Stream synchronization behavior", per-thread default stream.
TEST_CASE("cudaStreamPerThread is another stream in each thread" * unseen) {
  if (!has_devices(1)) return;
  unsigned long long here = 0;
  unsigned long long again = 0;
  unsigned long long there = 0;
  REQUIRE(cudaStreamGetId(cudaStreamPerThread, &here) == cudaSuccess);
  REQUIRE(cudaStreamGetId(cudaStreamPerThread, &again) == cudaSuccess);
  CHECK(here == again);
  std::thread([&] {
    cudaStreamGetId(cudaStreamPerThread, &there);
    cudaMemsetAsync(nullptr, 0, 0, cudaStreamPerThread);
  }).join();
  CHECK(there != 0);
  CHECK(here != there);
}

// cuda_runtime_api.h, cudaLaunchHostFunc: "may result in cudaErrorNotPermitted, but this
// is not required".
TEST_CASE("a host function may not call CUDA" * unseen) {
  if (!only_emulated()) return;
  const stream work;
  auto result = cudaSuccess;
  const auto call = [](void* argument) {
    void* memory = nullptr;
    *static_cast<cudaError_t*>(argument) = cudaMalloc(&memory, 1);
  };
  REQUIRE(cudaLaunchHostFunc(work, call, &result) == cudaSuccess);
  CHECK(cudaStreamSynchronize(work) == cudaSuccess);
  CHECK(result == cudaErrorNotPermitted);
}

TEST_CASE("a hundred streams work side by side" * unseen) {
  if (!has_devices(1)) return;
  constexpr std::size_t count = 100;
  const pinned<unsigned char> bytes(count);
  std::vector<std::unique_ptr<stream>> streams;
  for (std::size_t i = 0; i < count; ++i) {
    streams.push_back(std::make_unique<stream>());
    REQUIRE(cudaMemsetAsync(bytes.data() + i, static_cast<int>(i), 1, *streams[i]) ==
            cudaSuccess);
  }
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  for (std::size_t i = 0; i < count; ++i) CHECK(static_cast<std::size_t>(bytes[i]) == i);
}

// CUDA programming guide, "CUDA environment variables": CUDA_DEVICE_MAX_CONNECTIONS. That
// a command which waits for its own stream holds up those of others is what its best
// practices call false dependencies.
TEST_CASE("streams that share a connection hold each other up" * unseen) {
  if (!has_devices(1)) return;
  CHECK(run_again("one connection", {{"EMULATED_CUDA_CONNECTIONS", "1"},
                                     {"CUDA_DEVICE_MAX_CONNECTIONS", "1"}}) == 0);
  CHECK(run_again("two connections", {{"EMULATED_CUDA_CONNECTIONS", "2"},
                                      {"CUDA_DEVICE_MAX_CONNECTIONS", "2"}}) == 0);
}

namespace {

void hold_one_of_two(bool other_waits) {
  const stream held;
  const stream other;
  const pinned<unsigned char> bytes(2);
  gate shut;
  shut.stop(held);
  REQUIRE(cudaMemsetAsync(bytes.data(), 1, 1, held) == cudaSuccess);
  REQUIRE(cudaMemsetAsync(bytes.data() + 1, 2, 1, other) == cudaSuccess);
  if (other_waits) {
    CHECK(stays_pending(other));
    shut.open();
  }
  CHECK(cudaStreamSynchronize(other) == cudaSuccess);
  shut.open();
  CHECK(cudaStreamSynchronize(held) == cudaSuccess);
  CHECK(static_cast<int>(bytes[0]) == 1);
  CHECK(static_cast<int>(bytes[1]) == 2);
}

}  // namespace

TEST_CASE("one connection" * doctest::skip() * doctest::test_suite("again")) {
  hold_one_of_two(true);
}

TEST_CASE("two connections" * doctest::skip() * doctest::test_suite("again")) {
  hold_one_of_two(false);
}

TEST_SUITE_END();
