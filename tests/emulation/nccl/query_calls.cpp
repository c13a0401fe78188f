// What a communicator and the library say of themselves.
#include "call.hpp"
#include "settings.hpp"

using namespace nccl_emulation;

namespace {

template <class Read>
ncclResult_t ask(const char* name, ncclComm_t comm, int* to, Read read) {
  if (comm == nullptr) return missing(name, "comm");
  if (to == nullptr) return missing(name, "result");
  const use c{find(comm, name), name};
  if (const auto failure = ensure_ready(*c.shared())) return failure;
  *to = read(*c.shared());
  return ncclSuccess;
}

}  // namespace

NCCL_CALL(ncclResult_t, ncclCommCount, (const ncclComm_t comm, int* count)) {
  return ask("ncclCommCount", comm, count, [](const communicator& c) { return c.count; });
}

NCCL_CALL(ncclResult_t, ncclCommUserRank, (const ncclComm_t comm, int* rank)) {
  return ask("ncclCommUserRank", comm, rank,
             [](const communicator& c) { return c.rank; });
}

NCCL_CALL(ncclResult_t, ncclCommCuDevice, (const ncclComm_t comm, int* device)) {
  return ask("ncclCommCuDevice", comm, device,
             [](const communicator& c) { return c.device; });
}

NCCL_CALL(ncclResult_t, ncclGetVersion, (int* version)) {
  if (version == nullptr) return ncclInvalidArgument;
  *version = chosen().version;
  return ncclSuccess;
}

NCCL_CALL(const char*, ncclGetErrorString, (ncclResult_t result)) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

NCCL_CALL(const char*, ncclGetLastError, (ncclComm_t)) { return last_complaint(); }

// For tests alone: what a profiler's plugin would read as the communicator's name.
extern "C" __attribute__((visibility("default"))) const char* ncclEmulatedName(
    ncclComm_t comm) {
  return find(comm, "ncclEmulatedName")->config_name;
}
