// Memory and copies: research/nccl.md 6.3, trap 4, and the sequence words of 4.2.
#include <cuda.h>

#include <csignal>
#include <cstdint>
#include <cstring>
#include <vector>

#include "again.hpp"
#include "conformance.hpp"

using namespace conformance;

TEST_SUITE_BEGIN("cuda memory");

// cuda_runtime_api.h, cudaPointerGetAttributes: since CUDA 11 unknown memory is no error.
TEST_CASE("a pointer tells what memory it points to" * unseen) {
  if (!has_devices(1)) return;
  const device_bytes on_device(1024);
  const pinned<int> on_both;
  int on_host = 0;
  cudaPointerAttributes found{};
  REQUIRE(cudaPointerGetAttributes(&found, on_device.at(100)) == cudaSuccess);
  CHECK(found.type == cudaMemoryTypeDevice);
  CHECK(found.device == 0);
  CHECK(found.devicePointer == on_device.at(100));
  REQUIRE(cudaPointerGetAttributes(&found, on_both.data()) == cudaSuccess);
  CHECK(found.type == cudaMemoryTypeHost);
  CHECK(found.hostPointer == on_both.data());
  REQUIRE(cudaPointerGetAttributes(&found, &on_host) == cudaSuccess);
  CHECK(found.type == cudaMemoryTypeUnregistered);
}

TEST_CASE("host memory is registered once, and pinned while it is" * unseen) {
  if (!has_devices(1)) return;
  alignas(4096) static unsigned char page[4096];
  REQUIRE(cudaHostRegister(page, sizeof page, cudaHostRegisterDefault) == cudaSuccess);
  CHECK(cudaHostRegister(page, sizeof page, cudaHostRegisterDefault) ==
        cudaErrorHostMemoryAlreadyRegistered);
  cudaPointerAttributes found{};
  REQUIRE(cudaPointerGetAttributes(&found, page + 1) == cudaSuccess);
  CHECK(found.type == cudaMemoryTypeHost);
  CHECK(cudaHostUnregister(page) == cudaSuccess);
  CHECK(cudaHostUnregister(page) == cudaErrorHostMemoryNotRegistered);
  static_cast<void>(cudaGetLastError());
}

// CUDA runtime API, "API synchronization behavior".
TEST_CASE("pageable memory can be reused when an asynchronous copy has returned" *
          unseen) {
  if (!has_devices(1)) return;
  const stream work;
  const device_bytes bytes(1000);
  std::vector<unsigned char> sent(1000, 1);
  gate shut;
  shut.stop(work);
  REQUIRE(cudaMemcpyAsync(bytes.data(), sent.data(), 1000, cudaMemcpyHostToDevice,
                          work) == cudaSuccess);
  std::memset(sent.data(), 2, 1000);
  shut.open();
  std::vector<unsigned char> received(1000);
  REQUIRE(cudaMemcpyAsync(received.data(), bytes.data(), 1000, cudaMemcpyDeviceToHost,
                          work) == cudaSuccess);
  CHECK(received == std::vector<unsigned char>(1000, 1));
}

TEST_CASE("a copy out of the memory's bounds is refused" * unseen) {
  // A GPU sees only what leaves the mapped pages.
  if (!only_emulated()) return;
  const stream work;
  const device_bytes bytes(1000);
  std::vector<unsigned char> host(2000);
  CHECK(cudaMemcpyAsync(bytes.data(), host.data(), 1001, cudaMemcpyHostToDevice, work) ==
        cudaErrorInvalidValue);
  CHECK(cudaMemsetAsync(bytes.at(1), 0, 1000, work) == cudaErrorInvalidValue);
  CHECK(cudaMemcpy(host.data(), host.data() + 1000, 8, cudaMemcpyHostToDevice) ==
        cudaErrorInvalidValue);
  static_cast<void>(cudaGetLastError());
}

// NVIDIA/nccl#549: cudaFree waits for all work on the device, so one world's kernel that
// hangs holds up another world's free.
TEST_CASE("cudaFree waits for all that runs on the device" * unseen) {
  if (!has_devices(1)) return;
  const stream held;
  void* freed = nullptr;
  REQUIRE(cudaMalloc(&freed, 16) == cudaSuccess);
  gate shut;
  shut.stop(held);
  std::atomic<bool> is_free = false;
  std::thread freeing([&] {
    cudaFree(freed);
    is_free = true;
  });
  CHECK_FALSE(eventually([&] { return is_free.load(); }, std::chrono::milliseconds{20}));
  shut.open();
  freeing.join();
  CHECK(is_free);
}

// CUDA programming guide, "Stream ordered memory allocator".
TEST_CASE("stream-ordered memory is used and freed in the stream's order" * unseen) {
  if (!has_devices(1)) return;
  const stream work;
  const pinned<unsigned char> seen;
  void* memory = nullptr;
  gate shut;
  shut.stop(work);
  REQUIRE(cudaMallocAsync(&memory, 100, work) == cudaSuccess);
  REQUIRE(cudaMemsetAsync(memory, 6, 100, work) == cudaSuccess);
  REQUIRE(cudaMemcpyAsync(seen.data(), memory, 1, cudaMemcpyDefault, work) ==
          cudaSuccess);
  REQUIRE(cudaFreeAsync(memory, work) == cudaSuccess);
  shut.open();
  CHECK(cudaStreamSynchronize(work) == cudaSuccess);
  CHECK(static_cast<int>(seen[0]) == 6);
}

TEST_CASE("freed memory is poisoned when the stream gets there" * unseen) {
  if (!only_emulated()) return;
  const stream work;
  const stream other;
  const event before_free;
  const pinned<unsigned char> seen(2);
  void* memory = nullptr;
  REQUIRE(cudaMallocAsync(&memory, 100, work) == cudaSuccess);
  REQUIRE(cudaMemsetAsync(memory, 6, 100, work) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(work) == cudaSuccess);
  gate shut;
  shut.stop(work);
  REQUIRE(cudaFreeAsync(memory, work) == cudaSuccess);
  REQUIRE(cudaMemcpyAsync(seen.data(), memory, 1, cudaMemcpyDefault, other) ==
          cudaSuccess);
  CHECK(outcome_of_all_on(other) == cudaSuccess);
  CHECK(static_cast<int>(seen[0]) == 6);
  CHECK(cudaFreeAsync(memory, work) == cudaErrorInvalidValue);
  shut.open();
  CHECK(outcome_of_all_on(work) == cudaSuccess);
  CHECK(cudaMemsetAsync(memory, 0, 1, work) == cudaErrorInvalidValue);
  static_cast<void>(cudaGetLastError());
}

// Whether the address sanitizer watches memory once it is freed.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool address_sanitizer = true;
#elif defined(__has_feature)
constexpr bool address_sanitizer = __has_feature(address_sanitizer);
#else
constexpr bool address_sanitizer = false;
#endif

TEST_CASE("who writes to freed memory is found out") {
  if (!only_emulated() || address_sanitizer) return;
  const int status = run_again("write after free", {});
  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGABRT);
}

TEST_CASE("write after free" * doctest::skip() * doctest::test_suite("again")) {
  // So that doctest does not report what is wanted.
  signal(SIGABRT, SIG_DFL);
  void* freed = nullptr;
  REQUIRE(cudaMalloc(&freed, 100) == cudaSuccess);
  REQUIRE(cudaFree(freed) == cudaSuccess);
  auto* const bytes = static_cast<volatile unsigned char*>(freed);
  REQUIRE(static_cast<int>(bytes[99]) == 0xDB);
  bytes[99] = 0;
  // Until it is its turn to be given out again.
  for (int i = 0; i < 100; ++i) {
    REQUIRE(cudaMalloc(&freed, 1 << 20) == cudaSuccess);
    REQUIRE(cudaFree(freed) == cudaSuccess);
  }
}

// cuda_runtime_api.h, cudaMemPoolAttr.
TEST_CASE("a pool counts what is taken from it" * unseen) {
  if (!has_devices(1)) return;
  cudaMemPoolProps wanted{};
  wanted.allocType = cudaMemAllocationTypePinned;
  wanted.location = {cudaMemLocationTypeDevice, 0};
  cudaMemPool_t pool = nullptr;
  REQUIRE(cudaMemPoolCreate(&pool, &wanted) == cudaSuccess);
  std::uint64_t threshold = 1 << 20;
  CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold) ==
        cudaSuccess);
  const stream work;
  void* memory = nullptr;
  REQUIRE(cudaMallocFromPoolAsync(&memory, 512, pool, work) == cudaSuccess);
  std::uint64_t used = 0;
  CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used) ==
        cudaSuccess);
  CHECK(used >= 512);
  REQUIRE(cudaFreeAsync(memory, work) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(work) == cudaSuccess);
  CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used) ==
        cudaSuccess);
  CHECK(used == 0);
  CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &used) == cudaSuccess);
  CHECK(used >= 512);
  CHECK(cudaMemPoolTrimTo(pool, 0) == cudaSuccess);
  CHECK(cudaMemPoolDestroy(pool) == cudaSuccess);
}

template <class Function>
Function* driver_function(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status{};
  REQUIRE(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault,
                                           &status) == cudaSuccess);
  REQUIRE(status == cudaDriverEntryPointSuccess);
  return reinterpret_cast<Function*>(found);
}

using write_64 = CUresult(CUstream, CUdeviceptr, cuuint64_t, unsigned);
using wait_32 = CUresult(CUstream, CUdeviceptr, cuuint32_t, unsigned);

// cuda.h, cuStreamWriteValue64 and cuStreamWaitValue32.
TEST_CASE("a stream writes words where the host can see them, and waits for the host's" *
          unseen) {
  if (!has_devices(1)) return;
  const stream work;
  const pinned<std::uint64_t> written;
  const pinned<std::uint32_t> awaited;
  const auto address = [](auto* data) { return reinterpret_cast<CUdeviceptr>(data); };
  auto* const write = driver_function<write_64>("cuStreamWriteValue64");
  auto* const wait = driver_function<wait_32>("cuStreamWaitValue32");
  REQUIRE(wait(work, address(awaited.data()), 3, CU_STREAM_WAIT_VALUE_GEQ) ==
          CUDA_SUCCESS);
  REQUIRE(write(work, address(written.data()), 41, 0) == CUDA_SUCCESS);
  const auto word = [&] { return std::atomic_ref(written[0]).load(); };
  std::atomic_ref(awaited[0]).store(2);
  CHECK(stays_pending(work));
  CHECK(word() == 0);
  std::atomic_ref(awaited[0]).store(4);
  CHECK(eventually([&] { return word() == 41; }, std::chrono::seconds{20}));
  CHECK(cudaStreamSynchronize(work) == cudaSuccess);
  static_cast<void>(cudaGetLastError());
}

// cuda_runtime_api.h, cudaGetDriverEntryPointByVersion: success, and null.
TEST_CASE("a driver's function that is not there is no error" * unseen) {
  if (!has_devices(1)) return;
  void* found = &found;
  cudaDriverEntryPointQueryResult status{};
  CHECK(cudaGetDriverEntryPointByVersion("cuNoSuchFunction", &found, 12000,
                                         cudaEnableDefault, &status) == cudaSuccess);
  CHECK(found == nullptr);
  CHECK(status == cudaDriverEntryPointSymbolNotFound);
}

TEST_SUITE_END();
