// Pool state: the CUDA memory pool behind a device pool and its buffers.
#pragma once

#include "nccl/cuda_library.hpp"

namespace manyworlds::inline v0::detail::nccl {

/// It may be destroyed with buffers' frees still in their streams: CUDA keeps the pool
/// until those have run.
class pool_state {
 public:
  pool_state(const cuda_library& cuda, int device);
  pool_state(const pool_state&) = delete;
  pool_state& operator=(const pool_state&) = delete;
  ~pool_state();

  const cuda_library& cuda;
  const int device;
  cudaMemPool_t pool = nullptr;

 private:
  void admit_peers() noexcept;
};

}  // namespace manyworlds::inline v0::detail::nccl
