#include "communicator.hpp"

#include "complaint.hpp"
#include "job.hpp"
#include "settings.hpp"

#include <cuda_runtime_api.h>
#include <sys/random.h>

#include <cstring>
#include <unordered_map>

// The handle is an address that is never given out twice, so that a freed one stays
// known.
struct ncclComm {
  char unused = 0;
};

namespace nccl_emulation {

namespace {

struct siblings {
  std::vector<shared_communicator> all;
  std::size_t given_up = 0;
};

struct all_communicators {
  std::mutex guard;
  std::unordered_map<ncclComm_t, shared_communicator> by_handle;
  std::map<std::string, siblings> by_name;
};

// Never destroyed: threads of the application may outlive the destructors of this
// library.
all_communicators& everyone() {
  static auto* only = new all_communicators;
  return *only;
}

const void* this_thread() {
  thread_local const char mark = 0;
  return &mark;
}

}  // namespace

communicator::~communicator() {
  for (auto* window : windows) delete reinterpret_cast<char*>(window);
  for (auto* registration : registrations) delete static_cast<char*>(registration);
}

void communicator::raise_flags() {
  std::lock_guard lock{child_guard};
  if (child_flag) child_flag->raise();
  flag->raise();
}

void communicator::share_flag(const std::shared_ptr<abort_flag>& with) {
  flag = with;
  order.use_flag(*flag);
}

bool communicator::in_this_process(int other) const {
  return members[static_cast<std::size_t>(other)].process == this_process();
}

bool communicator::beside(int other) const {
  return members[static_cast<std::size_t>(other)].host == chosen().host_hash &&
         !in_this_process(other);
}

member_card communicator::card() const {
  member_card card;
  card.rank = rank;
  card.device = device;
  card.host = chosen().host_hash;
  card.process = this_process();
  int minor = 0;
  cudaDeviceGetAttribute(&card.capability, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  card.capability = card.capability * 10 + minor;
  cudaDeviceGetPCIBusId(card.bus, sizeof card.bus, device);
  return card;
}

std::uint64_t this_process() {
  static const std::uint64_t number = [] {
    std::uint64_t random = 0;
    [[maybe_unused]] auto got = ::getrandom(&random, sizeof random, 0);
    return random;
  }();
  return number;
}

ncclComm_t enlist(const shared_communicator& c) {
  auto* handle = new ncclComm;
  std::lock_guard lock{everyone().guard};
  c->handle = handle;
  everyone().by_handle[handle] = c;
  return handle;
}

void delist(communicator& c) {
  shared_communicator last;
  std::lock_guard lock{everyone().guard};
  last.swap(everyone().by_handle[c.handle]);
}

shared_communicator find(ncclComm_t handle, const char* call) {
  std::lock_guard lock{everyone().guard};
  const auto found = everyone().by_handle.find(handle);
  if (found == everyone().by_handle.end())
    end_process(call, handle, "this communicator was never made");
  if (!found->second) end_process(call, handle, "use after free of a communicator");
  return found->second;
}

void add_sibling(const shared_communicator& c) {
  std::lock_guard lock{everyone().guard};
  everyone().by_name[c->name].all.push_back(c);
}

std::vector<shared_communicator> give_up(const shared_communicator& c) {
  // It has met no other rank.
  if (c->members.empty()) return {c};
  std::lock_guard lock{everyone().guard};
  auto& group = everyone().by_name[c->name];
  std::size_t here = 0;
  for (const auto& member : c->members) here += member.process == this_process();
  // One that was cut short while it formed is no other's sibling, but those may have
  // formed, and wait for it to be given up.
  std::vector<shared_communicator> free;
  if (!c->initialised) free.push_back(c);
  if (++group.given_up < here) return free;
  for (auto& each : group.all) free.push_back(std::move(each));
  everyone().by_name.erase(c->name);
  return free;
}

use::use(shared_communicator c, const char* call) : c_(std::move(c)) {
  const void* found = nullptr;
  outermost_ = c_->user.compare_exchange_strong(found, this_thread());
  if (!outermost_ && found != this_thread()) end_by(call);
  if (outermost_) c_->user_call.store(call);
}

// Undefined also of ncclCommAbort, which frees what the other call uses; only a
// revocation may come meanwhile.
void use::end_by(const char* call) const {
  const char* other = c_->user_call.load();
  const std::string what =
      std::string{"two threads use one communicator at a time, the other is inside "} +
      (other != nullptr ? other : "another call");
  end_process(call, c_->handle, what.c_str());
}

use::~use() {
  if (!outermost_) return;
  c_->user_call.store(nullptr);
  c_->user.store(nullptr);
}

}  // namespace nccl_emulation

// For tests alone: 1 while a thread is inside a call of the communicator.
extern "C" __attribute__((visibility("default"))) int ncclEmulatedIsInside(
    ncclComm_t comm) {
  return nccl_emulation::find(comm, "ncclEmulatedIsInside")->user_call != nullptr;
}
