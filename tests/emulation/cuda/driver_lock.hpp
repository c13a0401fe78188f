// The driver's locks: one for each device's context, which calls hold while they run.
//
// Where the real driver has several for a context, this has one, and every call that
// could meet one of them takes it: code that works with this one works with several. That
// cudaFree keeps it while it waits for the device, so that calls of other threads stand
// still until a kernel ends, is what PyTorch (pull 130844, issue 97066) and NCCL (issues
// 48 and 829) have found. They speak of the lock of the context: calls for another device
// go on.
#pragma once

namespace emulated {

// For the length of a call for that device; within another call, whatever its device,
// nothing.
class driver_lock {
 public:
  explicit driver_lock(int device);
  driver_lock(const driver_lock&) = delete;
  driver_lock& operator=(const driver_lock&) = delete;
  ~driver_lock();
};

// While a call waits for a stream or an event it lets others call.
class driver_unlocked {
 public:
  driver_unlocked();
  driver_unlocked(const driver_unlocked&) = delete;
  driver_unlocked& operator=(const driver_unlocked&) = delete;
  ~driver_unlocked();

 private:
  int depth_ = 0;
};

// Within it, waiting keeps the lock.
class driver_lock_kept {
 public:
  driver_lock_kept();
  driver_lock_kept(const driver_lock_kept&) = delete;
  driver_lock_kept& operator=(const driver_lock_kept&) = delete;
  ~driver_lock_kept();
};

}  // namespace emulated
