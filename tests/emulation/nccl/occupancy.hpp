// The multiprocessors of a device: communicators wait while their operations do not fit.
#pragma once

#include "abort_flag.hpp"

#include <vector>

namespace nccl_emulation {

/// Holds `ctas` of the device's multiprocessors while it lives, so that over-commitment
/// deadlocks as on a GPU, where a waiting kernel keeps its place. In clusters: each on
/// one GPC, all at the same time, if their size divides `ctas` (src/enqueue.cc, "Grid
/// dimension must be divisible by clusterSize").
class occupancy {
 public:
  occupancy(int device, int ctas, int cluster, const abort_flag& flag);
  ~occupancy();
  occupancy(const occupancy&) = delete;
  occupancy& operator=(const occupancy&) = delete;

  /// False where the flag was raised before there was room.
  bool resident() const { return !taken_.empty(); }

 private:
  int device_;
  std::vector<int> taken_;  // of each GPC
};

}  // namespace nccl_emulation
