// Time slices: the turns that processes with work on one device take.
//
// Without MPS the contexts of a device never run at the same time: each has the whole of
// it for a slice ("Multi-Process Service" of NVIDIA's documents, "GPU time-slicing").
// What a kernel waits for from another process's kernel comes in that one's slice at the
// earliest.
#pragma once

#include <mutex>

namespace emulated {

class slices {
 public:
  explicit slices(int device) : device_(device) {}

  // While it lives the process has a kernel on the device, and takes its turns.
  class kernel {
   public:
    explicit kernel(int device);
    kernel(const kernel&) = delete;
    kernel& operator=(const kernel&) = delete;
    ~kernel();

   private:
    slices* of_;
  };

  // Returns in a slice of this process, at once where it has the device for itself.
  void await_turn();

 private:
  // A process with work has a seat: a socket of a name that goes with the process.
  static constexpr int most_processes = 16;

  void begin();
  void end();
  bool is_mine(long long slice);

  const int device_;
  std::mutex mutex_;
  int kernels_ = 0;
  int place_ = -1;
  int seat_ = -1;
  long long seen_ = -1;
  bool was_mine_ = false;
};

}  // namespace emulated
