// Communicators from unique ids.
#include "call.hpp"
#include "formation.hpp"
#include "settings.hpp"

#include <cuda_runtime_api.h>

#include <set>
#include <span>

using namespace nccl_emulation;

namespace {

/// ncclCommInitRankDev: sets the handle early and makes the rest a job of the group.
ncclResult_t begin(ncclComm_t* made, int count, std::span<const ncclUniqueId> ids,
                   int rank, int device, const ncclConfig_t* config) {
  if (made == nullptr) return missing("CommInitRank", "newcomm");
  *made = nullptr;
  if (ids.empty() || static_cast<int>(ids.size()) > count)
    return complain(ncclInvalidArgument, "improper number of unique ids");
  if (count < 1 || rank < 0 || rank >= count)
    return complain(ncclInvalidArgument, "Invalid rank requested");
  std::vector<std::string> roots;
  for (const auto& id : ids) {
    auto root = root_of_id(id);
    if (!root) return complain(ncclInvalidArgument, "not a unique id");
    roots.push_back(std::move(*root));
  }
  auto refusal = ncclSuccess;
  auto c = configured(config, device, refusal);
  if (!c) return refusal;
  c->rank = rank;
  c->count = count;
  const auto run = [c, roots] { return join(c, roots, c->cut()); };
  const auto result = group::current().add(job{c, false, run});
  if (result == ncclSuccess) *made = enlist(c);
  return result;
}

ncclResult_t init(const char* name, ncclComm_t* made, int count,
                  std::span<const ncclUniqueId> ids, int rank,
                  const ncclConfig_t* config) {
  int device = 0;
  if (const auto error = cudaGetDevice(&device))
    return complain(ncclUnhandledCudaError, cudaGetErrorString(error));
  const auto result =
      in_group(name, [&] { return begin(made, count, ids, rank, device, config); });
  if (made == nullptr || *made == nullptr) return result;
  const use c{find(*made, name), name};
  return state_or(*c.shared(), result);
}

}  // namespace

NCCL_CALL(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * id)) {
  if (id == nullptr) return missing("GetUniqueId", "out");
  const auto root = open_root();
  if (!root) return complain(ncclSystemError, "no bootstrap root");
  *id = id_of_root(*root);
  return ncclSuccess;
}

NCCL_CALL(ncclResult_t, ncclCommInitRankConfig,
          (ncclComm_t * comm, int count, ncclUniqueId id, int rank,
           ncclConfig_t* config)) {
  return init("ncclCommInitRankConfig", comm, count, {&id, 1}, rank, config);
}

NCCL_CALL(ncclResult_t, ncclCommInitRank,
          (ncclComm_t * comm, int count, ncclUniqueId id, int rank)) {
  return init("ncclCommInitRank", comm, count, {&id, 1}, rank, nullptr);
}

NCCL_CALL(ncclResult_t, ncclCommInitRankScalable,
          (ncclComm_t * comm, int count, int rank, int id_count, ncclUniqueId* ids,
           ncclConfig_t* config)) {
  if (ids == nullptr || id_count <= 0)
    return group::current().note(missing("CommInitRankScalable", "commId"));
  const std::span all{ids, static_cast<std::size_t>(id_count)};
  return init("ncclCommInitRankScalable", comm, count, all, rank, config);
}

NCCL_CALL(ncclResult_t, ncclCommInitAll,
          (ncclComm_t * comms, int count, const int* devices)) {
  if (comms == nullptr) return missing("CommInitAll", "comms");
  if (count < 0) return complain(ncclInvalidArgument, "Invalid device count requested");
  int present = 0;
  int before = 0;
  if (const auto error = cudaGetDeviceCount(&present))
    return complain(ncclUnhandledCudaError, cudaGetErrorString(error));
  std::set<int> seen;
  for (int i = 0; i < count; ++i) {
    const int device = devices != nullptr ? devices[i] : i;
    if (device < 0 || device >= present)
      return complain(ncclInvalidArgument, "Invalid device");
    if (!seen.insert(device).second)
      return complain(ncclInvalidUsage, "duplicate device");
  }
  ncclUniqueId id;
  if (const auto result = pncclGetUniqueId(&id)) return result;
  cudaGetDevice(&before);
  auto& here = group::current();
  here.start();
  for (int i = 0; i < count; ++i) {
    const int device = devices != nullptr ? devices[i] : i;
    here.note(begin(comms + i, count, {&id, 1}, i, device, nullptr));
  }
  const auto result = here.end("ncclCommInitAll");
  cudaSetDevice(before);
  return result;
}
