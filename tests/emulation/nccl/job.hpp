// What runs beside the caller: the thread NCCL makes for each group of non-blocking
// calls.
#pragma once

#include "communicator.hpp"

#include <functional>
#include <mutex>
#include <thread>

namespace nccl_emulation {

/// One thread, joined once, by the call that first sees the communicator ready or aborts
/// it (NCCL 2.28.9 src/group.cc ncclGroupJobComplete, ncclGroupJobAbort).
class background_job {
 public:
  explicit background_job(std::function<void()> run) : thread_(std::move(run)) {}
  ~background_job() { join(); }
  void join();

 private:
  std::mutex guard_;
  std::thread thread_;
};

/// The state a caller polls; joins the job when it is success.
ncclResult_t poll_state(communicator& c);

/// Success where a call may begin. An abort under way joins the job; otherwise one in
/// progress is an invalid argument (src/init.cc ncclCommEnsureReady).
ncclResult_t ensure_ready(communicator& c);

/// Stores a result for the poller; a poisoned communicator keeps its error.
void set_state(communicator& c, ncclResult_t result);

}  // namespace nccl_emulation
