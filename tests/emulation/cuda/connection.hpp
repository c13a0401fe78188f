// Connection: a hardware queue of a device, which streams share.
//
// Its commands are started in the order in which they were given, those of all streams
// alike: one that must wait for its own stream holds up what stands behind it. The guide
// of CUDA names the number (CUDA_DEVICE_MAX_CONNECTIONS, 8 if it is not set, 32 at most)
// and calls the effect false dependencies; NVIDIA/nccl issue 783 is what comes of it.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>

namespace emulated {

class connection {
 public:
  using turn = unsigned long long;

  // Behind all that was given before.
  turn give();
  // Waits until all that was given before has been started or dropped.
  void start(turn mine);
  void drop(turn mine);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<turn> waiting_;
  turn last_ = 0;
};

}  // namespace emulated
