#include "sealable_memory.hpp"

#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>

// Newer than Debian 12's headers.
#if !defined(MFD_NOEXEC_SEAL)
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace manyworlds::inline v0 {

int make_sealable_memory(const char* name) noexcept {
  constexpr unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  const int sealed = ::memfd_create(name, flags | MFD_NOEXEC_SEAL);
  if (sealed >= 0 || errno != EINVAL) return sealed;
  return ::memfd_create(name, flags);
}

bool is_within_file_limit(std::size_t bytes) noexcept {
  ::rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur >= bytes;
}

}  // namespace manyworlds::inline v0
