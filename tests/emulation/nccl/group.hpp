// Groups: what ncclGroupStart opens and the outermost ncclGroupEnd gives out at once.
#pragma once

#include "communicator.hpp"
#include "task.hpp"

#include <functional>
#include <memory>
#include <vector>

namespace nccl_emulation {

struct job {
  shared_communicator subject;
  /// The communicator is being destroyed or aborted: its group blocks, whatever its
  /// config.
  bool ending = false;
  std::function<ncclResult_t()> run;
  /// Another thread is inside a call of the communicator, and may be.
  bool beside_call = false;
};

struct group_work {
  std::vector<job> jobs;
  struct entry {
    shared_communicator c;
    std::vector<task> tasks;
  };
  std::vector<entry> entries;
};

/// The group of one thread; every single call is one too, nested in what is open.
class group {
 public:
  static group& current();

  void start() { ++depth_; }
  ncclResult_t end(const char* call);

  /// A failure of any member call fails the whole group; gives `result` back.
  ncclResult_t note(ncclResult_t result);

  ncclResult_t add(job j);
  ncclResult_t add(const shared_communicator& c, task t);

 private:
  ncclResult_t agree_on_blocking(const communicator& c);
  ncclResult_t give_out(std::shared_ptr<group_work> work, const char* call);

  int depth_ = 0;
  int blocking_ = -1;
  ncclResult_t error_ = ncclSuccess;
  std::shared_ptr<group_work> work_;
};

}  // namespace nccl_emulation
