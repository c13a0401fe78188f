// Memory, registrations, windows and reduction operators of a communicator.
#include "call.hpp"
#include "child.hpp"
#include "element.hpp"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

using namespace nccl_emulation;

namespace {

ncclResult_t checked(cudaError_t error) {
  if (error == cudaSuccess) return ncclSuccess;
  return complain(ncclUnhandledCudaError, cudaGetErrorString(error));
}

/// What ncclMemAlloc gave, aligned as windows need it, and what it was cut from.
struct allocations {
  std::mutex guard;
  std::map<void*, void*> base;
};

allocations& all() {
  static auto* only = new allocations;
  return *only;
}

}  // namespace

NCCL_CALL(ncclResult_t, ncclMemAlloc, (void** made, size_t size)) {
  if (made == nullptr || size == 0) return missing("ncclMemAlloc", "ptr");
  constexpr std::size_t alignment = NCCL_WIN_REQUIRED_ALIGNMENT;
  void* base = nullptr;
  if (const auto failure = checked(cudaMalloc(&base, size + alignment))) return failure;
  auto space = size + alignment;
  *made = base;
  std::align(alignment, size, *made, space);
  std::lock_guard lock{all().guard};
  all().base[*made] = base;
  return ncclSuccess;
}

NCCL_CALL(ncclResult_t, ncclMemFree, (void* memory)) {
  if (memory == nullptr) return ncclSuccess;
  void* base = memory;
  {
    std::lock_guard lock{all().guard};
    const auto found = all().base.find(memory);
    if (found != all().base.end()) {
      base = found->second;
      all().base.erase(found);
    }
  }
  return checked(cudaFree(base));
}

NCCL_CALL(ncclResult_t, ncclCommRegister,
          (const ncclComm_t comm, void* buffer, size_t size, void** handle)) {
  const auto name = "ncclCommRegister";
  if (comm == nullptr) return missing(name, "comm");
  if (buffer == nullptr || size == 0 || handle == nullptr) return missing(name, "buff");
  const use c{find(comm, name), name};
  *handle = new char;
  c->registrations.insert(*handle);
  return ncclSuccess;
}

NCCL_CALL(ncclResult_t, ncclCommDeregister, (const ncclComm_t comm, void* handle)) {
  const auto name = "ncclCommDeregister";
  if (comm == nullptr) return missing(name, "comm");
  const use c{find(comm, name), name};
  if (handle == nullptr) return ncclSuccess;
  if (c->registrations.erase(handle) == 0)
    return complain(ncclInvalidUsage, "deregistering what is not registered");
  delete static_cast<char*>(handle);
  return ncclSuccess;
}

NCCL_CALL(ncclResult_t, ncclCommWindowRegister,
          (ncclComm_t comm, void* buffer, size_t size, ncclWindow_t* made, int)) {
  const auto name = "ncclCommWindowRegister";
  if (comm == nullptr) return missing(name, "comm");
  if (made == nullptr) return missing(name, "win");
  const use c{find(comm, name), name};
  if (buffer == nullptr || size == 0) return ncclSuccess;
  return in_group(name, [&]() -> ncclResult_t {
    if (reinterpret_cast<std::uintptr_t>(buffer) % NCCL_WIN_REQUIRED_ALIGNMENT != 0)
      return complain(ncclInvalidArgument, "the window is not aligned");
    if (const auto failure = ensure_ready(*c.shared())) return failure;
    const child_request request{"window" + std::to_string(++c->windows_made),
                                all_ranks(*c.shared()), 0, 0};
    return group::current().add({c.shared(), false, [shared = c.shared(), request, made] {
                                   // Collective: it meets as the members of a child do,
                                   // and makes none.
                                   const auto result = make_child(shared, nullptr,
                                                                  request, shared->cut());
                                   if (result != ncclSuccess) return result;
                                   *made = reinterpret_cast<ncclWindow_t>(new char);
                                   shared->windows.insert(*made);
                                   return result;
                                 }});
  });
}

NCCL_CALL(ncclResult_t, ncclCommWindowDeregister,
          (ncclComm_t comm, ncclWindow_t window)) {
  const auto name = "ncclCommWindowDeregister";
  if (comm == nullptr) return missing(name, "comm");
  const use c{find(comm, name), name};
  if (window == nullptr) return ncclSuccess;
  if (c->windows.erase(window) == 0)
    return complain(ncclInvalidArgument, "not a window of this communicator");
  delete reinterpret_cast<char*>(window);
  return ncclSuccess;
}

NCCL_CALL(ncclResult_t, ncclRedOpCreatePreMulSum,
          (ncclRedOp_t * op, void* scalar, ncclDataType_t type,
           ncclScalarResidence_t residence, ncclComm_t comm)) {
  const auto name = "ncclRedOpCreatePreMulSum";
  if (comm == nullptr) return missing(name, "comm");
  if (op == nullptr || scalar == nullptr) return missing(name, "scalar");
  const use c{find(comm, name), name};
  if (const auto failure = ensure_ready(*c.shared())) return failure;
  reduction made;
  made.type = type;
  made.kind = static_cast<ncclRedOp_t>(c->next_reduction);
  if (residence == ncclScalarHostImmediate) {
    const auto* bytes = static_cast<const char*>(scalar);
    made.scalar.assign(bytes, bytes + size_of(type));
  } else {
    made.scalar_at = scalar;
  }
  c->reductions[c->next_reduction] = made;
  *op = static_cast<ncclRedOp_t>(c->next_reduction++);
  return ncclSuccess;
}

NCCL_CALL(ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm)) {
  const auto name = "ncclRedOpDestroy";
  if (op >= 0 && op < ncclNumOps)
    return complain(ncclInvalidArgument, "a built-in operator cannot be destroyed");
  if (comm == nullptr) return missing(name, "comm");
  const use c{find(comm, name), name};
  if (c->reductions.erase(op) == 0)
    return complain(ncclInvalidArgument, "unknown reduction operator");
  return ncclSuccess;
}
