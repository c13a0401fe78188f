// What a machine may do and most do not: each is a setting of the emulation, and a case
// here is run with it. On a GPU they are run as it is.
#include <cuda.h>

#include <cstdint>

#include <string>
#include <thread>

#include "again.hpp"
#include "conformance.hpp"

using namespace conformance;

TEST_SUITE_BEGIN("cuda strict");

namespace {

using std::chrono::milliseconds;

// A call on a thread of its own, on a device of its own.
class caller {
 public:
  template <class Call>
  caller(int device, Call call)
      : thread_([this, device, call] {
          cudaSetDevice(device);
          result_ = call();
          has_returned_ = true;
        }) {}
  ~caller() { thread_.join(); }
  caller(const caller&) = delete;

  bool has_returned() const { return has_returned_; }
  bool waits() const {
    return !eventually([this] { return has_returned(); }, milliseconds{50});
  }
  bool succeeds() const {
    return eventually([this] { return has_returned(); }) && result_ == cudaSuccess;
  }

 private:
  std::atomic<bool> has_returned_ = false;
  cudaError_t result_ = cudaErrorUnknown;
  std::thread thread_;
};

// Asks a device again and again on a thread of its own.
class asker {
 public:
  explicit asker(int device)
      : thread_([this, device] {
          cudaSetDevice(device);
          const stream own;
          while (!is_over_) {
            static_cast<void>(cudaStreamQuery(own));
            ++answers_;
            std::this_thread::sleep_for(milliseconds{1});
          }
        }) {}
  ~asker() {
    is_over_ = true;
    thread_.join();
  }
  asker(const asker&) = delete;

  bool is_answered() const {
    const int before = answers_;
    return eventually([&] { return answers_ >= before + 3; }, milliseconds{100});
  }

 private:
  std::atomic<bool> is_over_ = false;
  std::atomic<int> answers_ = 0;
  std::thread thread_;
};

template <class Function>
Function* driver_call(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status{};
  REQUIRE(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault,
                                           &status) == cudaSuccess);
  REQUIRE(status == cudaDriverEntryPointSuccess);
  return reinterpret_cast<Function*>(found);
}

}  // namespace

// PyTorch, pull 130844 and issue 97066: it is the lock of a context that cudaFree keeps.
TEST_CASE("a call that waits under its device's lock holds up no call for another" *
          unseen) {
  if (!has_devices(2)) return;
  CHECK(run_again("lock of one device", {{"EMULATED_CUDA_DRIVER_LOCK", "1"}}) == 0);
}

TEST_CASE("lock of one device" * doctest::skip() * doctest::test_suite("again")) {
  const stream held;
  const asker here{0};
  const asker elsewhere{1};
  REQUIRE(eventually([&] { return here.is_answered() && elsewhere.is_answered(); }));
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 64) == cudaSuccess);
  gate shut;
  shut.stop(held);
  const caller freeing{0, [=] { return cudaFree(memory); }};
  if (emulated()) {
    CHECK(eventually([&] { return !here.is_answered(); }));
    // At most what was under way: without the lock nearly all.
    int answered = 0;
    for (int look = 0; look < 5; ++look) answered += here.is_answered();
    CHECK(answered <= 1);
  }
  CHECK(eventually([&] { return elsewhere.is_answered(); }));
  CHECK(freeing.waits());
  shut.open();
  CHECK(freeing.succeeds());
  CHECK(eventually([&] { return here.is_answered(); }));
}

// CUDA programming guide, "Implicit Synchronization": a page-locked host memory
// allocation, a device memory allocation.
TEST_CASE("an allocation waits for what runs on its device, and for no other" * unseen) {
  if (!only_emulated()) return;
  CHECK(run_again("implicit", {{"EMULATED_CUDA_IMPLICIT_SYNC", "1"},
                               {"EMULATED_CUDA_DEVICES", "2"}}) == 0);
}

TEST_CASE("implicit" * doctest::skip() * doctest::test_suite("again")) {
  const stream held;
  void* memory = nullptr;
  void* pinned = nullptr;
  void* other = nullptr;
  gate shut;
  shut.stop(held);
  const caller on_device{0, [&] { return cudaMalloc(&memory, 64); }};
  const caller of_host{0, [&] { return cudaHostAlloc(&pinned, 64, 0); }};
  const caller elsewhere{1, [&] { return cudaMalloc(&other, 64); }};
  CHECK(elsewhere.succeeds());
  CHECK(on_device.waits());
  CHECK(of_host.waits());
  shut.open();
  CHECK(on_device.succeeds());
  CHECK(of_host.succeeds());
}

// CUDA programming guide, "Lazy Loading", "Potential Hazards": concurrent execution.
TEST_CASE("the first launch of a kernel waits for those that run" * unseen) {
  if (!only_emulated()) return;
  CHECK(run_again("lazy", {{"EMULATED_CUDA_LAZY_LOADING", "1"},
                           {"CUDA_MODULE_LOADING", "LAZY"}}) == 0);
}

TEST_CASE("a kernel that was loaded eagerly waits for none" * unseen) {
  if (!only_emulated()) return;
  CHECK(run_again("eager", {{"EMULATED_CUDA_LAZY_LOADING", "1"},
                            {"CUDA_MODULE_LOADING", "EAGER"}}) == 0);
}

TEST_CASE("lazy" * doctest::skip() * doctest::test_suite("again")) {
  const stream held;
  const stream other;
  const pinned<unsigned char> byte;
  const auto fill = [&] { return cudaMemsetAsync(byte.data(), 3, 1, other); };
  {
    gate shut;
    shut.stop(held);
    const caller first{0, fill};
    CHECK(first.waits());
    shut.open();
    CHECK(first.succeeds());
  }
  gate shut;
  shut.stop(held);
  CHECK(caller{0, fill}.succeeds());
  CHECK(outcome_of_all_on(other) == cudaSuccess);
  CHECK(static_cast<int>(byte[0]) == 3);
}

TEST_CASE("eager" * doctest::skip() * doctest::test_suite("again")) {
  const stream held;
  const stream other;
  const pinned<unsigned char> byte;
  gate shut;
  shut.stop(held);
  CHECK(caller{0, [&] { return cudaMemsetAsync(byte.data(), 3, 1, other); }}.succeeds());
}

// CUDA runtime API: many calls "may also return error codes from previous, asynchronous
// launches", and none says that a stream without work does.
TEST_CASE("a stream without work may hide that the device broke" * unseen) {
  if (!only_emulated()) return;
  CHECK(run_again("hidden", {{"EMULATED_CUDA_STICKY_SHOWN", "busy"},
                             {"EMULATED_CUDA_STICKY_AFTER", "1"}}) == 0);
}

TEST_CASE("hidden" * doctest::skip() * doctest::test_suite("again")) {
  const stream idle;
  const stream breaking;
  const event before;
  const event after;
  const event pending;
  const device_bytes memory(16);
  REQUIRE(cudaEventRecord(before, idle) == cudaSuccess);
  REQUIRE(outcome_of(before) == cudaSuccess);
  gate shut;
  shut.stop(breaking);
  REQUIRE(cudaMemsetAsync(memory.data(), 0, 16, breaking) == cudaSuccess);
  REQUIRE(cudaEventRecord(pending, breaking) == cudaSuccess);
  shut.open();
  CHECK(outcome_of(pending) == cudaErrorIllegalAddress);
  CHECK(cudaStreamQuery(breaking) == cudaErrorIllegalAddress);
  CHECK(cudaStreamQuery(idle) == cudaSuccess);
  CHECK(cudaStreamSynchronize(idle) == cudaSuccess);
  CHECK(cudaEventQuery(before) == cudaSuccess);
  CHECK(cudaEventRecord(after, idle) == cudaErrorIllegalAddress);
  CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
}

// CUDA programming guide, "Device Accessibility for Multi-GPU Support" of stream-ordered
// memory: cudaMemPoolSetAccess fails with cudaErrorInvalidDevice where
// cudaDeviceCanAccessPeer says no.
TEST_CASE("devices that reach nothing of each other's admit each other to no pool" *
          unseen) {
  if (!only_emulated()) return;
  CHECK(run_again("no peers", {{"EMULATED_CUDA_PEER_ACCESS", "0"},
                               {"EMULATED_CUDA_DEVICES", "2"}}) == 0);
}

TEST_CASE("no peers" * doctest::skip() * doctest::test_suite("again")) {
  int can = -1;
  REQUIRE(cudaDeviceCanAccessPeer(&can, 0, 1) == cudaSuccess);
  CHECK(can == 0);
  cudaMemPool_t pool = nullptr;
  REQUIRE(cudaDeviceGetDefaultMemPool(&pool, 0) == cudaSuccess);
  cudaMemAccessDesc access{};
  access.location.type = cudaMemLocationTypeDevice;
  access.flags = cudaMemAccessFlagsProtReadWrite;
  access.location.id = 1;
  CHECK(cudaMemPoolSetAccess(pool, &access, 1) == cudaErrorInvalidDevice);
  access.location.id = 0;
  CHECK(cudaMemPoolSetAccess(pool, &access, 1) == cudaSuccess);
  static_cast<void>(cudaGetLastError());
}

// cuda.h, cuCtxGetDevice and cuStreamWriteValue32: CUDA_ERROR_INVALID_CONTEXT.
TEST_CASE("the driver's calls fail on a thread without a context" * unseen) {
  if (!has_devices(1)) return;
  const stream work;
  const pinned<std::uint32_t> word;
  auto* const device_of = driver_call<CUresult(CUdevice*)>("cuCtxGetDevice");
  auto* const write = driver_call<CUresult(CUstream, CUdeviceptr, cuuint32_t, unsigned)>(
      "cuStreamWriteValue32");
  auto asked = CUDA_SUCCESS;
  auto written = CUDA_SUCCESS;
  std::thread([&] {
    CUdevice device = -1;
    asked = device_of(&device);
    written = write(work, reinterpret_cast<CUdeviceptr>(word.data()), 1, 0);
  }).join();
  CHECK(asked == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(written == CUDA_ERROR_INVALID_CONTEXT);
}

// cuda.h, cuStreamGetCtx: before CUDA 12.8 the way to a stream's device.
TEST_CASE("the driver tells a stream's context, and the context its device" * unseen) {
  if (!has_devices(2)) return;
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  const stream there;
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  CUcontext context = nullptr;
  auto* const context_of = driver_call<CUresult(CUstream, CUcontext*)>("cuStreamGetCtx");
  auto* const push = driver_call<CUresult(CUcontext)>("cuCtxPushCurrent");
  auto* const pop = driver_call<CUresult(CUcontext*)>("cuCtxPopCurrent");
  auto* const device_of = driver_call<CUresult(CUdevice*)>("cuCtxGetDevice");
  CUdevice device = -1;
  REQUIRE(context_of(there, &context) == CUDA_SUCCESS);
  REQUIRE(push(context) == CUDA_SUCCESS);
  CHECK(device_of(&device) == CUDA_SUCCESS);
  CHECK(device == 1);
  CHECK(pop(&context) == CUDA_SUCCESS);
  CHECK(device_of(&device) == CUDA_SUCCESS);
  CHECK(device == 0);
}

TEST_SUITE_END();
