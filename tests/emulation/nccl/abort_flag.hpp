// The flag that ncclCommAbort and ncclCommRevoke raise and everything that waits looks
// at.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>

namespace nccl_emulation {

/// May be shared by a parent and its child (splitShare, shrinkShare), as NCCL shares it.
///
/// Two ways to wait with it: poll `descriptor()`, readable while raised, or wait on
/// `changed` under `guard`.
class abort_flag {
 public:
  abort_flag();
  ~abort_flag();
  abort_flag(const abort_flag&) = delete;
  abort_flag& operator=(const abort_flag&) = delete;

  void raise();
  void lower();
  bool raised() const { return raised_.load(std::memory_order_acquire); }
  int descriptor() const { return descriptor_; }

  std::mutex guard;
  std::condition_variable changed;

 private:
  std::atomic<bool> raised_{false};
  int descriptor_;
};

/// What may cut a wait short: one flag, or a child's and its parent's.
struct interrupts {
  const abort_flag* first = nullptr;
  const abort_flag* second = nullptr;

  bool raised() const {
    return (first != nullptr && first->raised()) ||
           (second != nullptr && second->raised());
  }
};

}  // namespace nccl_emulation
