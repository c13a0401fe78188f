// What the conformance programs share. They call C interfaces only, and run on the
// emulation and on a GPU alike.
#pragma once

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "support/eventually.hpp"

namespace conformance {

using manyworlds::testing::eventually;

// Taken off a test once it has passed on one.
inline const doctest::description unseen{"unseen on a GPU"};

inline bool emulated() { return dlsym(RTLD_DEFAULT, "cudaEmulatedEnqueue") != nullptr; }

// False, with the reason told, where there are fewer devices.
inline bool has_devices(int wanted) {
  int count = 0;
  const auto result = cudaGetDeviceCount(&count);
  if (result == cudaSuccess && count >= wanted) return true;
  MESSAGE("skipped: ", wanted, " devices wanted, ", count, " there (",
          std::string(cudaGetErrorString(result)), ")");
  return false;
}

inline bool only_emulated() {
  if (!emulated()) MESSAGE("skipped: a real libcudart cannot be made to do this");
  return emulated();
}

class stream {
 public:
  explicit stream(unsigned flags = cudaStreamNonBlocking) {
    REQUIRE(cudaStreamCreateWithFlags(&handle_, flags) == cudaSuccess);
  }
  stream(const stream&) = delete;
  ~stream() {
    if (handle_ != nullptr) cudaStreamDestroy(handle_);
  }
  operator cudaStream_t() const { return handle_; }
  cudaStream_t release() { return std::exchange(handle_, nullptr); }

 private:
  cudaStream_t handle_ = nullptr;
};

class event {
 public:
  explicit event(unsigned flags = cudaEventDisableTiming) {
    REQUIRE(cudaEventCreateWithFlags(&handle_, flags) == cudaSuccess);
  }
  event(const event&) = delete;
  ~event() {
    if (handle_ != nullptr) cudaEventDestroy(handle_);
  }
  operator cudaEvent_t() const { return handle_; }
  cudaEvent_t release() { return std::exchange(handle_, nullptr); }

 private:
  cudaEvent_t handle_ = nullptr;
};

// A stream stopped by it does nothing more until it is opened, as by a kernel that spins.
// Only one at a time: a GPU may run the host functions of all streams on one thread.
class gate {
 public:
  // Returns when the stream has come to it: it must have nothing else to wait for.
  void stop(cudaStream_t at) {
    auto* held = new std::shared_ptr<state>(state_);
    REQUIRE(cudaLaunchHostFunc(at, &wait, held) == cudaSuccess);
    const auto reached = state_->reached.get_future().wait_for(std::chrono::seconds{20});
    REQUIRE(reached == std::future_status::ready);
  }
  void open() {
    if (!std::exchange(is_open_, true)) state_->opened.set_value();
  }
  gate() = default;
  gate(const gate&) = delete;
  ~gate() { open(); }

 private:
  struct state {
    std::promise<void> reached;
    std::promise<void> opened;
    std::shared_future<void> when_opened = opened.get_future().share();
  };

  static void wait(void* argument) {
    const std::unique_ptr<std::shared_ptr<state>> held(
        static_cast<std::shared_ptr<state>*>(argument));
    (*held)->reached.set_value();
    (*held)->when_opened.wait();
  }

  std::shared_ptr<state> state_ = std::make_shared<state>();
  bool is_open_ = false;
};

// Memory that the host and the device see.
template <class Value>
class pinned {
 public:
  explicit pinned(std::size_t count = 1) {
    REQUIRE(cudaHostAlloc(reinterpret_cast<void**>(&data_), count * sizeof(Value),
                          cudaHostAllocMapped) == cudaSuccess);
    for (std::size_t i = 0; i < count; ++i) data_[i] = Value{};
  }
  pinned(const pinned&) = delete;
  ~pinned() { cudaFreeHost(data_); }
  Value* data() const { return data_; }
  Value& operator[](std::size_t at) const { return data_[at]; }

 private:
  Value* data_ = nullptr;
};

class device_bytes {
 public:
  explicit device_bytes(std::size_t size) {
    REQUIRE(cudaMalloc(&data_, size) == cudaSuccess);
  }
  device_bytes(const device_bytes&) = delete;
  ~device_bytes() { cudaFree(data_); }
  void* data() const { return data_; }
  unsigned char* at(std::size_t offset) const {
    return static_cast<unsigned char*>(data_) + offset;
  }

 private:
  void* data_ = nullptr;
};

// Asks until it is no longer pending.
inline cudaError_t outcome_of(cudaEvent_t asked) {
  auto result = cudaErrorNotReady;
  static_cast<void>(eventually(
      [&] {
        result = cudaEventQuery(asked);
        return result != cudaErrorNotReady;
      },
      std::chrono::seconds{20}));
  static_cast<void>(cudaGetLastError());
  return result;
}

// Looks for a while: what has no reason to wait comes to its end meanwhile.
template <class Query>
bool outlasts_a_while(Query query) {
  const bool pending = !eventually([&] { return query() != cudaErrorNotReady; },
                                   std::chrono::milliseconds{20});
  static_cast<void>(cudaGetLastError());
  return pending;
}

inline bool stays_pending(cudaEvent_t asked) {
  return outlasts_a_while([=] { return cudaEventQuery(asked); });
}

inline bool stays_pending(cudaStream_t asked) {
  return outlasts_a_while([=] { return cudaStreamQuery(asked); });
}

inline cudaError_t outcome_of_all_on(cudaStream_t asked) {
  const event end;
  const auto recorded = cudaEventRecord(end, asked);
  return recorded == cudaSuccess ? outcome_of(end) : recorded;
}

}  // namespace conformance
