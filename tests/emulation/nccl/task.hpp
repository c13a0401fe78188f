// One operation as it was called.
#pragma once

#include "communicator.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>

namespace nccl_emulation {

enum class call {
  send,
  receive,
  all_reduce,
  broadcast,
  reduce,
  all_gather,
  reduce_scatter
};

struct task {
  call what = call::send;
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclInt8;
  reduction op;
  /// The root, or the peer of a send or receive.
  int root = 0;
  cudaStream_t stream = nullptr;

  bool point_to_point() const { return what == call::send || what == call::receive; }
  std::size_t bytes() const;
  /// What it writes: the region to poison when it is cut short. Null where it writes
  /// nothing.
  void* written(const communicator& c) const;
  std::size_t written_bytes(const communicator& c) const;
};

}  // namespace nccl_emulation
