#include "mapped_pool.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <new>

#include "arena_layout.hpp"
#include "manyworlds/memory/pool_memory.hpp"

namespace manyworlds::inline v0::shm {

namespace {

// Neither cut off nor punched full of holes under who reads it: that would be a signal.
constexpr int expected_seals =
    F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
constexpr std::size_t piece_bytes = pool_memory::granule;

const char* objection(int file, std::uint64_t bytes) noexcept {
  struct stat found {};
  struct statfs filesystem {};
  const int seals = ::fcntl(file, F_GET_SEALS);
  if (seals < 0 || (seals & expected_seals) != expected_seals) {
    return "a shared pool that is not sealed";
  }
  // Huge pages can run out under us, with a signal.
  if (::fstat(file, &found) != 0 || ::fstatfs(file, &filesystem) != 0 ||
      filesystem.f_type != TMPFS_MAGIC) {
    return "a shared pool of a kind that is not used";
  }
  if (bytes == 0 || bytes % piece_bytes != 0 ||
      found.st_size != static_cast<off_t>(bytes)) {
    return "a shared pool of another size than it said";
  }
  // Of more than there can be of it nothing is used but our room for addresses.
  if (bytes / page_bytes > static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES))) {
    return "a shared pool larger than this machine's memory";
  }
  return nullptr;
}

}  // namespace

mapped_pool::mapped_pool(const std::byte* base, std::size_t bytes)
    : base_(base), bytes_(bytes), seen_(bytes / piece_bytes) {}

mapped_pool::~mapped_pool() { ::munmap(const_cast<std::byte*>(base_), bytes_); }

std::shared_ptr<mapped_pool> mapped_pool::map(const unique_descriptor& file,
                                              std::uint64_t bytes, const char*& wrong) {
  wrong = objection(file.get(), bytes);
  if (wrong) return nullptr;
  void* base = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.get(), 0);
  if (base == MAP_FAILED) return nullptr;
  // A forked child is not this member: it must not hold the memory.
  ::madvise(base, bytes, MADV_DONTFORK);
  try {
    return std::shared_ptr<mapped_pool>(
        new mapped_pool(static_cast<const std::byte*>(base), bytes));
  } catch (const std::bad_alloc&) {
    ::munmap(base, bytes);
    throw;
  }
}

const std::byte* mapped_pool::at(std::size_t offset, std::size_t bytes) noexcept {
#if defined(MADV_POPULATE_READ)
  constexpr int populate = MADV_POPULATE_READ;
#else
  constexpr int populate = 22;
#endif
  const std::size_t end =
      bytes == 0 ? offset / piece_bytes : (offset + bytes - 1) / piece_bytes + 1;
  for (std::size_t i = offset / piece_bytes; i < end; ++i) {
    if (seen_[i]) continue;
    // A system call instead of a fault for every few pages; and where the peer has left a
    // hole that cannot be filled, an errno instead of a signal. EINVAL: before Linux
    // 5.14.
    std::byte* const place = const_cast<std::byte*>(base_) + i * piece_bytes;
    if (::madvise(place, piece_bytes, populate) != 0 && errno != EINVAL) return nullptr;
    seen_[i] = true;
  }
  return base_ + offset;
}

}  // namespace manyworlds::inline v0::shm
