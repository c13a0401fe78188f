#include "nccl/nccl_library.hpp"

#include <fmt/format.h>

namespace manyworlds::inline v0::detail::nccl {

namespace {

constexpr int oldest_version = 21800;

template <class Function>
void find_newer(const shared_library& library, const char* name, Function*& into) {
  into = library.find<Function>(name);
}

nccl_library find_nccl() {
  nccl_library found;
  const shared_library library("libnccl.so.2");
  if (!library) {
    found.error = fmt::format(
        "NCCL cannot be loaded ({}): install it, or put its folder (of the "
        "wheel: nvidia/nccl/lib) on the library path",
        library.error());
    return found;
  }
  const char* missing = nullptr;
#define MANYWORLDS_FIND(symbol)                                                        \
  found.symbol = library.find<std::remove_pointer_t<decltype(found.symbol)>>(#symbol); \
  if (!found.symbol) missing = #symbol;
  MANYWORLDS_NCCL_FUNCTIONS(MANYWORLDS_FIND)
#undef MANYWORLDS_FIND
  if (found.ncclGetVersion) (void)found.ncclGetVersion(&found.version);
  if (missing || found.version < oldest_version) {
    found.error = fmt::format("NCCL {} is too old: at least {} is needed",
                              version_text(found.version), version_text(oldest_version));
    return found;
  }
  find_newer(library, "ncclCommRevoke", found.ncclCommRevoke);
  find_newer(library, "ncclCommSuspend", found.ncclCommSuspend);
  find_newer(library, "ncclCommResume", found.ncclCommResume);
  find_newer(library, "ncclCommMemStats", found.ncclCommMemStats);
  return found;
}

}  // namespace

const nccl_library& nccl_library::get() {
  // What is loaded is the process's, and never changes: not state of the library's own.
  static const nccl_library found = find_nccl();
  return found;
}

std::string nccl_library::describe(ncclResult_t result, ncclComm_t on) const {
  const char* more = ncclGetLastError(on);
  std::string text = ncclGetErrorString(result);
  if (more && *more) text += fmt::format(": {}", more);
  return text;
}

std::string version_text(int version) {
  if (version < 10000)
    return fmt::format("{}.{}.{}", version / 1000, version / 100 % 10, version % 100);
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace manyworlds::inline v0::detail::nccl
