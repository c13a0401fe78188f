#include "link/mapped_pool.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <new>

#include "link/segment_layout.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/pool_memory.hpp"
#include "memory/sealable_memory.hpp"

namespace manyworlds::inline v0::detail::shm {

namespace {

constexpr std::size_t piece_bytes = pool_memory::granule;

const char* validate_pool(int file, std::uint64_t bytes) noexcept {
  const sealed_file found = examine_sealed(file, pool_seals, bytes);
  if (found == sealed_file::not_sealed) return "a shared pool that is not sealed";
  if (found == sealed_file::unknown || found == sealed_file::of_another_kind) {
    return "a shared pool that is no memory of a known kind";
  }
  if (found == sealed_file::of_another_size || bytes == 0 || bytes % piece_bytes != 0) {
    return "a shared pool of another size than it said";
  }
  // A pool larger than the memory could hold nothing and would only use up addresses.
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
  wrong = validate_pool(file.get(), bytes);
  if (wrong) return nullptr;
  void* base = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.get(), 0);
  if (base == MAP_FAILED) return nullptr;
  // A forked child is not this member and must not hold the memory.
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
  MW_ASSERT(contains(offset, bytes), "a pool is read within its bounds");
  const std::size_t end =
      bytes == 0 ? offset / piece_bytes : (offset + bytes - 1) / piece_bytes + 1;
  for (std::size_t i = offset / piece_bytes; i < end; ++i) {
    if (seen_[i]) continue;
    // A hole that cannot be filled gives an errno here instead of a signal later.
    std::byte* const place = const_cast<std::byte*>(base_) + i * piece_bytes;
    if (populate(place, piece_bytes, pages_for::reading) != 0) return nullptr;
    seen_[i] = true;
  }
  return base_ + offset;
}

}  // namespace manyworlds::inline v0::detail::shm
