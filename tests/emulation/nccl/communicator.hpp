// One rank's end of an emulated communicator, and the register of those alive.
#pragma once

#include "abort_flag.hpp"
#include "bootstrap.hpp"
#include "order.hpp"
#include "sockets.hpp"

#include <nccl.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace nccl_emulation {

/// The connections to one other rank. Each carries messages one way, and consent the
/// other way, so that no rank has to read what it did not ask for.
struct peer_lines {
  descriptor out;
  descriptor in;
};

struct reduction {
  ncclRedOp_t kind = ncclSum;
  /// Only of ncclRedOpCreatePreMulSum: the scalar's bytes, or where they will stand.
  const void* scalar_at = nullptr;
  std::vector<char> scalar;
  ncclDataType_t type = ncclFloat32;
};

class background_job;

struct communicator {
  ~communicator();

  // Fixed once formed.
  ncclComm_t handle = nullptr;
  int rank = -1;
  int count = -1;
  int device = -1;
  int blocking = 1;
  int max_ctas = 32;
  /// Blocks that must be on one GPC at the same time; 0: none need be.
  int cluster = 4;
  int split_share = 0;
  int shrink_share = 0;
  std::string name;
  /// The caller's text, of which NCCL keeps the pointer alone.
  const char* config_name = nullptr;
  std::vector<member_card> members;
  std::vector<peer_lines> lines;

  std::shared_ptr<abort_flag> flag = std::make_shared<abort_flag>();
  /// Raised with `flag` while a child is being made; null otherwise.
  std::shared_ptr<abort_flag> child_flag;
  std::mutex child_guard;

  std::atomic<ncclResult_t> async_result{ncclSuccess};
  /// What the network proxy of the real library would report.
  std::atomic<ncclResult_t> proxy_result{ncclSuccess};
  /// A group with it failed, not for its arguments: it can only be aborted.
  std::atomic<ncclResult_t> unusable{ncclSuccess};
  /// A later call came while one was in progress: the success of that one does not mend
  /// it.
  std::atomic<bool> poisoned{false};
  /// An operation was cut short: its connections are in the middle of a message.
  std::atomic<bool> torn{false};
  /// Its connections are gone: finalised, revoked or being freed.
  std::atomic<bool> closed{false};
  std::atomic<bool> initialised{false};
  std::atomic<bool> revoked{false};
  std::atomic<bool> finalized{false};
  std::atomic<bool> destroying{false};
  std::atomic<bool> suspended{false};
  /// A call waits for room in the work queue, or connects, and looks at the flag
  /// meanwhile.
  std::atomic<bool> looks_at_flag{false};

  std::shared_ptr<background_job> job;
  operation_order order{*flag};

  // Owned by the thread that calls; children and windows are counted alike by all ranks.
  std::set<std::string> connected;
  std::vector<void*> device_memory;
  std::vector<void*> pinned_memory;
  int children = 0;
  int windows_made = 0;
  std::map<int, reduction> reductions;
  int next_reduction = ncclNumOps;
  std::set<void*> registrations;
  std::set<ncclWindow_t> windows;
  bool invitation_open = false;

  std::atomic<const void*> user{nullptr};
  /// The name of the call that thread is inside of.
  std::atomic<const char*> user_call{nullptr};

  interrupts cut() const { return {flag.get(), nullptr}; }
  void raise_flags();
  void share_flag(const std::shared_ptr<abort_flag>& with);
  bool in_this_process(int other) const;
  bool beside(int other) const;
  member_card card() const;
};

using shared_communicator = std::shared_ptr<communicator>;

/// A number that no other process has.
std::uint64_t this_process();

ncclComm_t enlist(const shared_communicator& c);
void delist(communicator& c);

/// The communicator behind a handle. One that was freed, or never made, ends the process.
shared_communicator find(ncclComm_t handle, const char* call);

/// Ranks of one communicator in this process are freed together, when the last is given
/// up. Gives those to free now.
std::vector<shared_communicator> give_up(const shared_communicator& c);
void add_sibling(const shared_communicator& c);

/// One thread's use of a communicator; two at a time end the process.
class use {
 public:
  use(shared_communicator c, const char* call);
  ~use();
  use(const use&) = delete;
  use& operator=(const use&) = delete;

  communicator* operator->() const { return c_.get(); }
  const shared_communicator& shared() const { return c_; }

 private:
  [[noreturn]] void end_by(const char* call) const;

  shared_communicator c_;
  bool outermost_;
};

}  // namespace nccl_emulation
