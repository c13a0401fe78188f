// Freeing thread: a thread of the application that frees memory beside the worlds.
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <future>

#include "nccl/device_fixture.hpp"

namespace manyworlds::testing {

/// Frees memory of the current device, which CUDA does when the device is idle, and holds
/// the driver's lock until then where there is one. It is made while the device is idle:
/// allocating too may wait for that.
class freeing_thread {
 public:
  freeing_thread() {
    auto* allocate = find_in_cudart<cudaError_t(void**, std::size_t)>("cudaMalloc");
    auto* release = find_in_cudart<cudaError_t(void*)>("cudaFree");
    REQUIRE((allocate && release));
    void* memory = nullptr;
    REQUIRE(allocate(&memory, 4096) == cudaSuccess);
    free_ = [release, memory] { return release(memory); };
  }
  freeing_thread(const freeing_thread&) = delete;
  freeing_thread& operator=(const freeing_thread&) = delete;
  ~freeing_thread() {
    if (!freed_.valid()) begin();
    CHECK(freed_.get() == cudaSuccess);
  }

  void begin() { freed_ = std::async(std::launch::async, free_); }
  [[nodiscard]] bool has_ended_after(std::chrono::milliseconds time) {
    return freed_.wait_for(time) == std::future_status::ready;
  }

 private:
  std::function<cudaError_t()> free_;
  std::future<cudaError_t> freed_;
};

}  // namespace manyworlds::testing
