// Calls that came after 2.28.9: only in the library built as a newer one.
#include "call.hpp"
#include "child.hpp"
#include "formation.hpp"
#include "plan.hpp"
#include "settings.hpp"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>

using namespace nccl_emulation;

// As nccl.h of 2.29.7 declares it.
typedef enum {
  ncclStatGpuMemSuspend = 0,
  ncclStatGpuMemSuspended = 1,
  ncclStatGpuMemPersist = 2,
  ncclStatGpuMemTotal = 3
} ncclCommMemStat_t;

namespace {

constexpr int first_with_grow = 22902;
constexpr int first_with_suspend = 22907;
constexpr int suspend_memory = 1;

// What a channel to one peer takes: see the memory per communicator in NVIDIA/nccl issue
// 1685.
constexpr std::uint64_t bytes_per_channel = 10ULL << 20;

ncclResult_t since(int version) {
  if (chosen().version >= version) return ncclSuccess;
  return complain(ncclInvalidUsage, "this call is not in this version");
}

std::uint64_t memory_of(const communicator& c) {
  return bytes_per_channel * static_cast<std::uint64_t>(c.max_ctas) *
         static_cast<std::uint64_t>(c.count - 1);
}

ncclResult_t change(const char* name, ncclComm_t comm, bool suspended) {
  if (const auto absent = since(first_with_suspend)) return absent;
  if (comm == nullptr) return missing(name, "comm");
  const use c{find(comm, name), name};
  if (const auto failure = ensure_ready(*c.shared())) return failure;
  if (c->suspended == suspended) return complain(ncclInvalidUsage, "it is so already");
  const child_request everyone{
      (suspended ? "suspend" : "resume") + std::to_string(++c->children),
      all_ranks(*c.shared()), 0, 0};
  const auto result = in_group(name, [&] {
    return group::current().add(
        {c.shared(), false, [shared = c.shared(), everyone, suspended] {
           wait_quiet(*shared);
           const auto met = make_child(shared, nullptr, everyone, shared->cut());
           if (met == ncclSuccess) shared->suspended = suspended;
           return met;
         }});
  });
  if (result != ncclSuccess && result != ncclInProgress) return result;
  return state_or(*c.shared(), result);
}

/// The coordinator's invitation, told to all members of the parent.
std::string invitation(const shared_communicator& parent, const std::string& own,
                       const std::string& meeting, interrupts cut) {
  auto card = parent->card();
  std::snprintf(card.invitation, sizeof card.invitation, "%s", own.c_str());
  const auto cards = meet(meeting, parent->rank, parent->count, card, cut);
  if (!cards) return {};
  for (const auto& each : *cards)
    if (each.invitation[0] != '\0') return each.invitation;
  return {};
}

ncclResult_t grow(const shared_communicator& parent, int count, const ncclUniqueId* id,
                  int rank, ncclComm_t* made, const ncclConfig_t* config) {
  auto refusal = ncclSuccess;
  int device = parent ? parent->device : 0;
  if (!parent) cudaGetDevice(&device);
  auto c = parent && config == nullptr ? configured_like(*parent)
                                       : configured(config, device, refusal);
  if (!c) return refusal;
  c->rank = parent ? parent->rank : rank;
  c->count = count;
  std::string own;
  if (id != nullptr) {
    const auto root = root_of_id(*id);
    if (!root) return complain(ncclInvalidArgument, "not a unique id");
    own = *root;
  }
  std::string meeting;
  if (parent) meeting = derive(*parent, "grow" + std::to_string(++parent->children));
  *made = enlist(c);
  return group::current().add(
      {c, false, [=] {
         const interrupts cut{c->flag.get(), parent ? parent->flag.get() : nullptr};
         const auto root = parent ? invitation(parent, own, meeting, cut) : own;
         if (root.empty()) return complain(ncclInternalError, "no rank was invited");
         if (parent) parent->invitation_open = false;
         return join(c, {root}, c->cut());
       }});
}

}  // namespace

NCCL_CALL(ncclResult_t, ncclCommGetUniqueId, (ncclComm_t comm, ncclUniqueId* id)) {
  const auto name = "ncclCommGetUniqueId";
  if (const auto absent = since(first_with_grow)) return absent;
  if (comm == nullptr) return missing(name, "comm");
  if (id == nullptr) return missing(name, "uniqueId");
  const use c{find(comm, name), name};
  if (const auto failure = ensure_ready(*c.shared())) return failure;
  // A parent of one rank has no bootstrap to tell the others over.
  if (c->count == 1) return complain(ncclInternalError, "no bootstrap networking");
  if (c->invitation_open)
    return complain(ncclInvalidUsage, "a previous id is not consumed yet");
  const auto root = open_root();
  if (!root) return complain(ncclSystemError, "no bootstrap root");
  c->invitation_open = true;
  *id = id_of_root(*root);
  return ncclSuccess;
}

NCCL_CALL(ncclResult_t, ncclCommGrow,
          (ncclComm_t comm, int count, const ncclUniqueId* id, int rank, ncclComm_t* made,
           ncclConfig_t* config)) {
  const auto name = "ncclCommGrow";
  if (const auto absent = since(first_with_grow)) return absent;
  if (made == nullptr) return missing(name, "newcomm");
  *made = nullptr;
  if (count <= 0) return complain(ncclInvalidArgument, "total ranks must be positive");
  shared_communicator parent;
  std::optional<use> used;
  if (comm != nullptr) {
    parent = find(comm, name);
    used.emplace(parent, name);
    if (count <= parent->count) return complain(ncclInvalidArgument, "it does not grow");
    if (rank != -1) return complain(ncclInvalidArgument, "existing ranks pass -1");
    if (const auto failure = ensure_ready(*parent)) return failure;
  } else if (id == nullptr || rank < 0 || rank >= count) {
    return complain(ncclInvalidArgument, "new ranks pass an id and their rank");
  }
  const auto result =
      in_group(name, [&] { return grow(parent, count, id, rank, made, config); });
  if (*made == nullptr) return result;
  const use grown{find(*made, name), name};
  return state_or(*grown.shared(), result);
}

NCCL_CALL(ncclResult_t, ncclCommSuspend, (ncclComm_t comm, int flags)) {
  if ((flags & suspend_memory) == 0) return ncclSuccess;
  return change("ncclCommSuspend", comm, true);
}

NCCL_CALL(ncclResult_t, ncclCommResume, (ncclComm_t comm)) {
  return change("ncclCommResume", comm, false);
}

NCCL_CALL(ncclResult_t, ncclCommMemStats,
          (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value)) {
  const auto name = "ncclCommMemStats";
  if (const auto absent = since(first_with_suspend)) return absent;
  if (comm == nullptr) return missing(name, "comm");
  const use c{find(comm, name), name};
  if (const auto failure = ensure_ready(*c.shared())) return failure;
  if (value == nullptr) return missing(name, "value");
  switch (stat) {
    case ncclStatGpuMemSuspend:
    case ncclStatGpuMemTotal:
      *value = memory_of(*c.shared());
      return ncclSuccess;
    case ncclStatGpuMemSuspended:
      *value = c->suspended ? 1 : 0;
      return ncclSuccess;
    case ncclStatGpuMemPersist:
      *value = 0;
      return ncclSuccess;
    default:
      return complain(ncclInvalidArgument, "unknown statistic");
  }
}
