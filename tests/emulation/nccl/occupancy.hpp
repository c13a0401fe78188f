// The multiprocessors of a device: communicators whose operations do not fit wait.
#pragma once

#include "abort_flag.hpp"

namespace nccl_emulation {

/// Holds `ctas` of the device's multiprocessors while it lives, so that over-commitment
/// deadlocks as on a GPU, where a waiting kernel keeps its place.
class occupancy {
 public:
  occupancy(int device, int ctas, const abort_flag& flag);
  ~occupancy();
  occupancy(const occupancy&) = delete;
  occupancy& operator=(const occupancy&) = delete;

  /// False where the flag was raised before there was room.
  bool resident() const { return taken_ > 0; }

 private:
  int device_;
  int taken_ = 0;
};

}  // namespace nccl_emulation
