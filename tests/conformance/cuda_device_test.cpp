// Devices, errors and what breaks them: research/nccl.md 6.3, traps 5 and 6; and 6.1.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "again.hpp"
#include "conformance.hpp"

using namespace conformance;

TEST_SUITE_BEGIN("cuda device");

// CUDA programming guide, "Device selection".
TEST_CASE("each thread has a current device of its own, the first one at first" *
          unseen) {
  if (!has_devices(2)) return;
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  int elsewhere = -1;
  std::thread([&] { cudaGetDevice(&elsewhere); }).join();
  CHECK(elsewhere == 0);
  int here = -1;
  CHECK(cudaGetDevice(&here) == cudaSuccess);
  CHECK(here == 1);
  CHECK(cudaSetDevice(1000) == cudaErrorInvalidDevice);
  CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
  CHECK(cudaGetDevice(&here) == cudaSuccess);
  CHECK(here == 1);
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
}

TEST_CASE("devices are told apart, and describe themselves" * unseen) {
  if (!has_devices(2)) return;
  std::string addresses[2];
  for (int device = 0; device < 2; ++device) {
    char text[32] = {};
    REQUIRE(cudaDeviceGetPCIBusId(text, sizeof text, device) == cudaSuccess);
    addresses[device] = text;
    int multiprocessors = 0;
    REQUIRE(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount,
                                   device) == cudaSuccess);
    cudaDeviceProp properties{};
    REQUIRE(cudaGetDeviceProperties(&properties, device) == cudaSuccess);
    CHECK(properties.multiProcessorCount == multiprocessors);
    CHECK(properties.totalGlobalMem > 0);
  }
  CHECK(addresses[0] != addresses[1]);
  int can = -1;
  CHECK(cudaDeviceCanAccessPeer(&can, 0, 0) == cudaSuccess);
  CHECK(can == 0);
}

TEST_CASE("errors have names and texts") {
  CHECK(std::string(cudaGetErrorName(cudaErrorNotReady)) == "cudaErrorNotReady");
  CHECK(std::string(cudaGetErrorString(cudaErrorNotReady)) == "device not ready");
  CHECK(std::string(cudaGetErrorString(cudaErrorIllegalAddress)) ==
        "an illegal memory access was encountered");
  CHECK(std::string(cudaGetErrorName(static_cast<cudaError_t>(12345))) ==
        "unrecognized error code");
}

// CUDA runtime API, cudaErrorIllegalAddress: the process "must be terminated and
// relaunched".
TEST_CASE("a kernel that breaks its device ends all work of the process" * unseen) {
  if (!only_emulated()) return;
  CHECK(run_again("sticky", {{"EMULATED_CUDA_STICKY_AFTER", "2"}}) == 0);
}

TEST_CASE("sticky" * doctest::skip() * doctest::test_suite("again")) {
  const stream first;
  stream neighbour;
  const event pending;
  const device_bytes memory(16);
  bool called = false;
  gate shut;
  shut.stop(neighbour);
  REQUIRE(cudaLaunchHostFunc(
              neighbour, [](void* flag) { *static_cast<bool*>(flag) = true; }, &called) ==
          cudaSuccess);
  REQUIRE(cudaEventRecord(pending, neighbour) == cudaSuccess);
  REQUIRE(cudaMemsetAsync(memory.data(), 0, 16, first) == cudaSuccess);
  REQUIRE(cudaMemsetAsync(memory.data(), 0, 16, first) == cudaSuccess);
  // The host that waits is told; so is every other call, in every thread, again and
  // again.
  CHECK(cudaStreamSynchronize(first) == cudaErrorIllegalAddress);
  CHECK(cudaEventQuery(pending) == cudaErrorIllegalAddress);
  CHECK(cudaStreamQuery(neighbour) == cudaErrorIllegalAddress);
  CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
  CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
  void* more = nullptr;
  auto elsewhere = cudaSuccess;
  std::thread([&] { elsewhere = cudaMalloc(&more, 1); }).join();
  CHECK(elsewhere == cudaErrorIllegalAddress);
  shut.open();
  CHECK(cudaStreamDestroy(neighbour.release()) == cudaErrorIllegalAddress);
  // cudaLaunchHostFunc: "not called" when the context is in an error state.
  CHECK_FALSE(called);
}

TEST_CASE("a host that waits is woken when the device breaks" * unseen) {
  if (!only_emulated()) return;
  CHECK(run_again("woken", {{"EMULATED_CUDA_STICKY_AFTER", "1"}}) == 0);
}

TEST_CASE("woken" * doctest::skip() * doctest::test_suite("again")) {
  const stream breaking;
  const stream waited_for;
  const event broken;
  device_bytes memory(16);
  gate shut;
  shut.stop(breaking);
  REQUIRE(cudaMemsetAsync(memory.data(), 0, 16, breaking) == cudaSuccess);
  REQUIRE(cudaEventRecord(broken, breaking) == cudaSuccess);
  REQUIRE(cudaStreamWaitEvent(waited_for, broken, 0) == cudaSuccess);
  auto result = cudaSuccess;
  std::thread waiting([&] { result = cudaStreamSynchronize(waited_for); });
  shut.open();
  waiting.join();
  CHECK(result == cudaErrorIllegalAddress);
}

// As measured with libcudart 13.0 on a machine without a driver.
TEST_CASE("without a driver every call says so, and the error stays") {
  if (!only_emulated()) return;
  CHECK(run_again("no driver", {{"EMULATED_CUDA_DRIVER", "0"}}) == 0);
}

TEST_CASE("no driver" * doctest::skip() * doctest::test_suite("again")) {
  int version = -1;
  CHECK(cudaDriverGetVersion(&version) == cudaSuccess);
  CHECK(version == 0);
  CHECK(cudaRuntimeGetVersion(&version) == cudaSuccess);
  CHECK(version == CUDART_VERSION);
  int count = -1;
  CHECK(cudaGetDeviceCount(&count) == cudaErrorInsufficientDriver);
  CHECK(count == -1);
  CHECK(cudaGetLastError() == cudaErrorInsufficientDriver);
  CHECK(cudaGetLastError() == cudaErrorInsufficientDriver);
  CHECK(cudaSetDevice(0) == cudaErrorInsufficientDriver);
  auto mode = cudaStreamCaptureModeRelaxed;
  CHECK(cudaThreadExchangeStreamCaptureMode(&mode) == cudaErrorInsufficientDriver);
}

TEST_CASE("without a device every call says so" * unseen) {
  if (!only_emulated()) return;
  CHECK(run_again("no device", {{"EMULATED_CUDA_DEVICES", "0"}}) == 0);
}

TEST_CASE("no device" * doctest::skip() * doctest::test_suite("again")) {
  int count = -1;
  CHECK(cudaGetDeviceCount(&count) == cudaErrorNoDevice);
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, 1) == cudaErrorNoDevice);
}

// CUDA programming guide, "fork": a child of a process that used CUDA cannot.
TEST_CASE("a forked child is refused, and does not hang" * unseen) {
  if (!has_devices(1)) return;
  const stream used;
  gate shut;
  shut.stop(used);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    const bool refused = cudaStreamQuery(used) == cudaErrorInitializationError &&
                         cudaStreamSynchronize(used) == cudaErrorInitializationError;
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  shut.open();
  CHECK(outcome_of_all_on(used) == cudaSuccess);
}

TEST_CASE("a process ends while its streams hang" * unseen) {
  if (!only_emulated()) return;
  CHECK(run_again("hanging", {}) == 0);
}

TEST_CASE("hanging" * doctest::skip() * doctest::test_suite("again")) {
  cudaStream_t left = nullptr;
  REQUIRE(cudaStreamCreate(&left) == cudaSuccess);
  const auto hang = [](void*) {
    for (;;) pause();
  };
  REQUIRE(cudaLaunchHostFunc(left, hang, nullptr) == cudaSuccess);
  REQUIRE(cudaMemsetAsync(nullptr, 0, 0, left) == cudaSuccess);
  std::exit(0);
}

TEST_CASE("a device that was reset has forgotten its streams" * unseen) {
  if (!only_emulated()) return;
  CHECK(run_again("reset", {}) == 0);
}

TEST_CASE("reset" * doctest::skip() * doctest::test_suite("again")) {
  cudaStream_t lost = nullptr;
  void* memory = nullptr;
  REQUIRE(cudaStreamCreate(&lost) == cudaSuccess);
  REQUIRE(cudaMalloc(&memory, 16) == cudaSuccess);
  CHECK(cudaDeviceReset() == cudaSuccess);
  CHECK(cudaStreamQuery(lost) == cudaErrorInvalidResourceHandle);
  CHECK(cudaFree(memory) == cudaErrorInvalidValue);
  const stream fresh;
  CHECK(outcome_of_all_on(fresh) == cudaSuccess);
}

TEST_SUITE_END();
