#include "memory/sealable_memory.hpp"

#include <linux/magic.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>

// These are newer than Debian 12's headers.
#if !defined(MFD_NOEXEC_SEAL)
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#if !defined(MADV_POPULATE_READ)
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace manyworlds::inline v0::detail {

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

int reserve_file(int descriptor, std::size_t offset, std::size_t bytes) noexcept {
  while (::fallocate(descriptor, 0, static_cast<off_t>(offset),
                     static_cast<off_t>(bytes)) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

int populate(std::byte* first, std::size_t bytes, pages_for use) noexcept {
  const int advice = use == pages_for::reading ? MADV_POPULATE_READ : MADV_POPULATE_WRITE;
  return ::madvise(first, bytes, advice) == 0 || errno == EINVAL ? 0 : errno;
}

sealed_file examine_sealed(int descriptor, int seals, std::uint64_t bytes) noexcept {
  const int found = ::fcntl(descriptor, F_GET_SEALS);
  if (found < 0 || (found & seals) != seals) return sealed_file::not_sealed;
  struct stat file {};
  struct statfs filesystem {};
  if (::fstat(descriptor, &file) != 0 || ::fstatfs(descriptor, &filesystem) != 0) {
    return sealed_file::unknown;
  }
  // Huge pages can run out while we use them, which is a signal.
  if (filesystem.f_type != TMPFS_MAGIC) return sealed_file::of_another_kind;
  return file.st_size == static_cast<off_t>(bytes) ? sealed_file::as_it_should_be
                                                   : sealed_file::of_another_size;
}

}  // namespace manyworlds::inline v0::detail
