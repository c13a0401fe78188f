// The names libnccl.so.2 exports. Source: nm -D of 2.28.9; nccl.h of 2.32.3.
#include "nccl_support.hpp"

#include <cstring>
#include <string>

using namespace conformance;

namespace {

void* find(const std::string& name) { return dlsym(RTLD_DEFAULT, name.c_str()); }

constexpr const char* names[] = {
    "AllGather",
    "AllReduce",
    "AlltoAll",
    "Bcast",
    "Broadcast",
    "CommAbort",
    "CommCount",
    "CommCuDevice",
    "CommDeregister",
    "CommDestroy",
    "CommFinalize",
    "CommGetAsyncError",
    "CommInitAll",
    "CommInitRank",
    "CommInitRankConfig",
    "CommInitRankScalable",
    "CommRegister",
    "CommRevoke",
    "CommShrink",
    "CommSplit",
    "CommUserRank",
    "CommWindowDeregister",
    "CommWindowRegister",
    "Gather",
    "GetErrorString",
    "GetLastError",
    "GetUniqueId",
    "GetVersion",
    "GroupEnd",
    "GroupStart",
    "MemAlloc",
    "MemFree",
    "Recv",
    "RedOpCreatePreMulSum",
    "RedOpDestroy",
    "Reduce",
    "ReduceScatter",
    "Scatter",
    "Send",
};

struct later {
  const char* name;
  int version;
};

constexpr later later_names[] = {
    {"CommGrow", 22902},   {"CommGetUniqueId", 22902}, {"CommSuspend", 22907},
    {"CommResume", 22907}, {"CommMemStats", 22907},
};

int version() {
  int value = 0;
  CHECK(ncclGetVersion(&value) == ncclSuccess);
  return value;
}

}  // namespace

TEST_CASE("every call is there, and stands in for its pnccl name" * unseen) {
  for (const std::string name : names) {
    CAPTURE(name);
    CHECK(find("nccl" + name) != nullptr);
    CHECK(find("nccl" + name) == find("pnccl" + name));
  }
}

TEST_CASE("a call that came later is absent from an earlier version" * unseen) {
  for (const later& each : later_names) {
    const auto name = std::string{"nccl"} + each.name;
    CAPTURE(name);
    CHECK((find(name) != nullptr) == (version() >= each.version));
  }
}

TEST_CASE("errors have texts" * unseen) {
  CHECK(std::strcmp(ncclGetErrorString(ncclSuccess), "no error") == 0);
  CHECK(std::strcmp(ncclGetErrorString(ncclRemoteError),
                    "remote process exited or there was a network error") == 0);
  CHECK(std::strcmp(ncclGetErrorString(ncclNumResults), "unknown result code") == 0);
  CHECK(ncclGetLastError(nullptr) != nullptr);
}
