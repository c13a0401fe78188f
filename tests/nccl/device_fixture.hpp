// What tests of device memory share: is there a device, and a stream that is held up.
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <semaphore>
#include <string>
#include <vector>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/memory/device_view.hpp"
#include "manyworlds/nccl/on.hpp"
#include "nccl/cuda_library.hpp"

namespace manyworlds::testing {

inline const nccl::cuda_library& cuda() { return nccl::cuda_library::get(); }

/// What the library itself does not call; null if the loaded runtime has none.
template <class Function>
Function* find_in_cudart(const char* name) {
  const nccl::shared_library library(
      ("libcudart.so." + std::to_string(CUDART_VERSION / 1000)).c_str());
  return library ? library.find<Function>(name) : nullptr;
}

inline task<void> wait_for(device_stream stream) { co_await on(stream); }

/// Why no test here can use a device; empty if one can.
inline std::string no_device() {
  if (!cuda().error.empty()) return cuda().error;
  int devices = 0;
  const auto error = cuda().cudaGetDeviceCount(&devices);
  return error == cudaSuccess ? "" : cuda().describe(error);
}

/// The emulation tells more than a GPU does, and can be broken on demand.
inline bool is_emulated() {
  return find_in_cudart<void()>("cudaEmulatedEnqueue") != nullptr;
}

/// The device of the first rank: another than 0 for tests that look after GPU 0.
/// Set by a test that has creations given up before a member came to them:
/// NCCL's thread and socket for each wait until the process ends (2.28.9
/// src/bootstrap.cc, bootstrapRoot), and are not that test's leak.
inline bool keeps_roots = false;

inline int first_device() {
  const char* chosen = std::getenv("MANYWORLDS_TEST_DEVICE");
  return chosen ? std::atoi(chosen) : 0;
}

/// Whether this process has made the device's context, where the emulation tells.
inline bool has_context(int device) {
  auto* asked = find_in_cudart<int(int)>("cudaEmulatedHasContext");
  if (asked == nullptr) FAIL("the emulation is too old");
  return asked(device) != 0;
}

/// A machine without a GPU and without an emulated one has nothing to test here. Where a
/// device is promised, its lack is a failure.
inline bool skips_without_device() {
  const std::string why = no_device();
  if (why.empty()) return false;
  if (std::getenv("MANYWORLDS_TEST_HAS_DEVICE")) FAIL(why);
  MESSAGE("skipped: no CUDA device: ", why);
  return true;
}

#define NEEDS_DEVICE() \
  if (manyworlds::testing::skips_without_device()) return

/// For ranks in one process, each on a device of its own, as NCCL demands.
inline bool skips_without_own_devices(int wanted) {
  if (skips_without_device()) return true;
  int devices = 0;
  REQUIRE(cuda().cudaGetDeviceCount(&devices) == cudaSuccess);
  if (devices >= wanted) return false;
  MESSAGE("skipped: ", wanted, " devices wanted for ranks in one process, ", devices,
          " there");
  return true;
}

#define NEEDS_OWN_DEVICES(ranks) \
  if (manyworlds::testing::skips_without_own_devices(ranks)) return

/// What is on the stream after it waits until it is opened.
class gate {
 public:
  explicit gate(device_stream on) {
    REQUIRE(cuda().cudaLaunchHostFunc(
                on.handle(),
                [](void* self) {
                  auto& it = *static_cast<gate*>(self);
                  it.reached_.release();
                  it.may_pass_.acquire();
                  it.passed_.release();
                },
                this) == cudaSuccess);
  }
  gate(const gate&) = delete;
  gate& operator=(const gate&) = delete;
  ~gate() {
    open();
    CHECK(passed_.try_acquire_for(std::chrono::seconds(20)));
  }

  void open() {
    if (!is_open_) may_pass_.release();
    is_open_ = true;
  }
  /// Waits until the stream has got to it.
  void await_stream() { REQUIRE(reached_.try_acquire_for(std::chrono::seconds(20))); }
  [[nodiscard]] bool is_open() const noexcept { return is_open_; }

 private:
  std::binary_semaphore reached_{0};
  std::binary_semaphore may_pass_{0};
  std::binary_semaphore passed_{0};
  bool is_open_ = false;
};

/// 0, 1, 2 ... so that every element tells where it belongs.
inline std::vector<float> counting(std::size_t count, float from = 0) {
  std::vector<float> numbers(count);
  for (auto& number : numbers) number = from++;
  return numbers;
}

}  // namespace manyworlds::testing
