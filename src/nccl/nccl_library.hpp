// NCCL library: the functions of NCCL that the library calls.
#pragma once

#include <nccl.h>

#include <string>

#include "nccl/shared_library.hpp"

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 18, 0)
#error "NCCL 2.18 or later, or a build without it: -DMANYWORLDS_HAS_NCCL=0"
#endif

// Since 2.18 or earlier: must be there.
#define MANYWORLDS_NCCL_FUNCTIONS(each)                                                 \
  each(ncclAllGather) each(ncclAllReduce) each(ncclBroadcast) each(ncclCommAbort)       \
      each(ncclCommCount) each(ncclCommCuDevice) each(ncclCommDestroy)                  \
          each(ncclCommFinalize) each(ncclCommGetAsyncError)                            \
              each(ncclCommInitRankConfig) each(ncclCommSplit) each(ncclCommUserRank)   \
                  each(ncclGetErrorString) each(ncclGetLastError) each(ncclGetUniqueId) \
                      each(ncclGetVersion) each(ncclGroupEnd) each(ncclGroupStart)      \
                          each(ncclRecv) each(ncclReduce) each(ncclReduceScatter)       \
                              each(ncclSend)

namespace manyworlds::inline v0::detail::nccl {

/// Holds the functions that were found. Newer entry points are null where the library
/// is older.
struct nccl_library {
#define MANYWORLDS_DECLARE(name) decltype(&::name) name = nullptr;
  MANYWORLDS_NCCL_FUNCTIONS(MANYWORLDS_DECLARE)
#undef MANYWORLDS_DECLARE
  // Declared here, as the headers may be older than what is loaded.
  /// Since 2.28.7.
  ncclResult_t (*ncclCommRevoke)(ncclComm_t, int flags) = nullptr;
  /// Since 2.29.7. The statistic is an enumeration: 0 is the bytes that may be
  /// suspended, 3 all bytes.
  ncclResult_t (*ncclCommSuspend)(ncclComm_t, int flags) = nullptr;
  ncclResult_t (*ncclCommResume)(ncclComm_t) = nullptr;
  ncclResult_t (*ncclCommMemStats)(ncclComm_t, int statistic,
                                   std::uint64_t* bytes) = nullptr;

  /// The version as ncclGetVersion gives it: 22809 is 2.28.9.
  int version = 0;
  /// What is missing and what to do; empty if all is there.
  std::string error;

  /// Returns the process's table. The first call looks for the functions, which may
  /// take long.
  [[nodiscard]] static const nccl_library& get();

  /// Returns a text such as "unhandled cuda error: <what NCCL said last>".
  [[nodiscard]] std::string describe(ncclResult_t result, ncclComm_t on = nullptr) const;
};

/// Returns a text such as "2.28.9".
[[nodiscard]] std::string version_text(int version);

}  // namespace manyworlds::inline v0::detail::nccl
