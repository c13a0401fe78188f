// What the tests of NCCL's behaviour share: buffers, streams, forming, waiting.
#pragma once

#include "conformance.hpp"
#include "crew.hpp"

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace conformance {

using namespace std::chrono_literals;

/// Long enough for any operation here to end; long enough to believe that one hangs.
inline constexpr auto limit = 20s;
inline constexpr auto hanging = 200ms;
/// Elements of what is not moved at once.
inline constexpr std::size_t many = 1 << 20;

template <class Condition>
bool within(std::chrono::milliseconds time, Condition condition) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

class device_stream {
 public:
  device_stream() {
    REQUIRE(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) == cudaSuccess);
  }
  ~device_stream() { cudaStreamDestroy(stream_); }
  device_stream(const device_stream&) = delete;
  device_stream& operator=(const device_stream&) = delete;

  operator cudaStream_t() const { return stream_; }
  bool finished(std::chrono::milliseconds time = limit) const {
    return within(time, [&] {
      const auto state = cudaStreamQuery(stream_);
      if (state == cudaErrorNotReady) cudaGetLastError();
      return state == cudaSuccess;
    });
  }
  bool hangs() const { return !finished(hanging); }

 private:
  cudaStream_t stream_ = nullptr;
};

template <class T>
class device_array {
 public:
  explicit device_array(std::vector<T> values) : count_(values.size()) {
    REQUIRE(cudaMalloc(&data_, count_ * sizeof(T)) == cudaSuccess);
    REQUIRE(cudaMemcpy(data_, values.data(), count_ * sizeof(T),
                       cudaMemcpyHostToDevice) == cudaSuccess);
  }
  ~device_array() { cudaFree(data_); }
  device_array(const device_array&) = delete;
  device_array& operator=(const device_array&) = delete;

  T* data() const { return static_cast<T*>(data_); }
  std::size_t size() const { return count_; }
  std::vector<T> values() const {
    std::vector<T> out(count_);
    REQUIRE(cudaMemcpy(out.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost) ==
            cudaSuccess);
    return out;
  }

 private:
  void* data_ = nullptr;
  std::size_t count_;
};

inline int device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

inline ncclResult_t state_of(ncclComm_t comm) {
  auto state = ncclInternalError;
  CHECK(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
  return state;
}

/// The state a non-blocking communicator comes to.
inline ncclResult_t settled(ncclComm_t comm, std::chrono::milliseconds time = limit) {
  auto state = ncclInProgress;
  static_cast<void>(within(time, [&] {
    state = state_of(comm);
    return state != ncclInProgress;
  }));
  return state;
}

inline ncclConfig_t config_with(int blocking) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = blocking;
  return config;
}

/// A communicator over all ranks of the scenario, each with a device of its own where
/// there are enough.
inline ncclComm_t form(const rank& me, int blocking = 1) {
  REQUIRE(cudaSetDevice(me.index() % device_count()) == cudaSuccess);
  const auto id = me.shared_id();
  auto config = config_with(blocking);
  ncclComm_t comm = nullptr;
  const auto result = ncclCommInitRankConfig(&comm, me.count(), id, me.index(), &config);
  if (blocking == 1)
    REQUIRE(result == ncclSuccess);
  else
    REQUIRE(settled(comm) == ncclSuccess);
  return comm;
}

/// A message each way between two ranks, so that the next one finds its peer connected:
/// a first one may wait in its call until the peer has called too.
inline void exchange_first(ncclComm_t comm, int peer) {
  const device_stream stream;
  const device_array<int> from{{1}};
  const device_array<int> to{{0}};
  CHECK(ncclGroupStart() == ncclSuccess);
  static_cast<void>(ncclSend(from.data(), 1, ncclInt, peer, comm, stream));
  static_cast<void>(ncclRecv(to.data(), 1, ncclInt, peer, comm, stream));
  static_cast<void>(ncclGroupEnd());
  CHECK(settled(comm) == ncclSuccess);
  CHECK(stream.finished());
  CHECK(to.values() == std::vector<int>{1});
}

/// Of one value by each rank; all call it.
inline int sum_over(ncclComm_t comm, int value) {
  const device_stream stream;
  const device_array<int> data{std::vector<int>(4, value)};
  ncclAllReduce(data.data(), data.data(), 4, ncclInt, ncclSum, comm, stream);
  CHECK(settled(comm) == ncclSuccess);
  CHECK(stream.finished());
  return data.values().front();
}

/// An abort that must return in time is the test's to bound: it runs beside.
inline bool aborts_within(ncclComm_t comm, std::chrono::milliseconds time) {
  struct shared {
    std::atomic<bool> done{false};
  };
  auto state = std::make_shared<shared>();
  std::thread([comm, state] {
    ncclCommAbort(comm);
    state->done = true;
  }).detach();
  return within(time, [&] { return state->done.load(); });
}

}  // namespace conformance
