#include "manyworlds/detail/pool_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>

#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/pool_registry.hpp"
#include "memory/sealable_memory.hpp"

namespace manyworlds::inline v0::detail {

namespace {

constexpr std::size_t rounded_up(std::size_t bytes, std::size_t to) noexcept {
  return (bytes + to - 1) / to * to;
}

}  // namespace

pool_memory::pool_memory(std::shared_ptr<pool_registry> known_to, std::size_t bytes)
    : known_to_(std::move(known_to)),
      bytes_(rounded_up(bytes, granule)),
      id_(known_to_->next_id()) {
  free_.emplace(0, bytes_);
  map();
}

pool_memory::~pool_memory() {
  if (base_) ::munmap(base_, bytes_);
  if (descriptor_ >= 0) {
    known_to_->remove(*this);
    ::close(descriptor_);
  }
}

void pool_memory::map() {
  if (!map_shared()) {
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
    void* own = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (own == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<std::byte*>(own);
    reserved_ = bytes_;
  }
  // A forked child is not this member, so it must neither hold the memory nor write to
  // it.
  ::madvise(base_, bytes_, MADV_DONTFORK);
}

bool pool_memory::map_shared() {
  const auto refused = [this](const char* what) {
    refusal_ = std::string(what) + ": " + std::strerror(errno);
    return false;
  };
  descriptor_ = make_sealable_memory("manyworlds-pool");
  if (descriptor_ < 0) return refused("memfd_create");
  if (!is_within_file_limit(bytes_)) {
    errno = EFBIG;
    return refused("the limit of file sizes (ulimit -f)");
  }
  if (::ftruncate(descriptor_, static_cast<off_t>(bytes_)) != 0) {
    return refused("ftruncate of a shared pool");
  }
  // It is mapped before it is sealed: afterwards no process, not even ours, can map it to
  // write.
  void* shared =
      ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (shared == MAP_FAILED) return refused("mapping a shared pool");
  if (::fcntl(descriptor_, F_ADD_SEALS, pool_seals) != 0) {
    const bool sealed = refused("sealing a shared pool");
    ::munmap(shared, bytes_);
    return sealed;
  }
  base_ = static_cast<std::byte*>(shared);
  return true;
}

bool pool_memory::contains(const void* first, std::size_t bytes) const noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(first);
  const auto begin = reinterpret_cast<std::uintptr_t>(base_);
  return at >= begin && at - begin <= bytes_ && bytes <= bytes_ - (at - begin);
}

std::size_t pool_memory::offset_of(const void* first) const noexcept {
  MW_ASSERT(contains(first, 0), "only an address in the pool has an offset");
  return static_cast<std::size_t>(static_cast<const std::byte*>(first) - base_);
}

bool pool_memory::reserve(std::size_t end) noexcept {
  if (end <= reserved_) return true;
  const std::size_t wanted = std::min(rounded_up(end, granule), bytes_);
  MW_ASSERT(end <= wanted, "a part ends within the pool");
  const std::size_t more = wanted - reserved_;
  if (reserve_file(descriptor_, reserved_, more) != 0) return false;
  // The pages exist: a fault maps what is not mapped now.
  static_cast<void>(populate(base_ + reserved_, more, pages_for::writing));
  reserved_ = wanted;
  return true;
}

std::byte* pool_memory::allocate(std::size_t bytes) noexcept {
  if (bytes == 0 || bytes > bytes_) return nullptr;
  const std::size_t whole = rounded_up(bytes, line);
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(free_.begin(), free_.end(), [whole](const auto& part) {
    return part.second >= whole;
  });
  if (found == free_.end() || !reserve(found->first + whole)) return nullptr;
  MW_ASSERT(found->first + found->second <= bytes_, "free parts lie within the pool");
  const std::size_t offset = found->first;
  const std::size_t left = found->second - whole;
  auto node = free_.extract(found);
  if (left > 0) {
    node.key() = offset + whole;
    node.mapped() = left;
    free_.insert(std::move(node));
  }
  return base_ + offset;
}

void pool_memory::free(std::byte* first, std::size_t bytes) noexcept {
  const std::size_t begin = offset_of(first);
  const std::size_t size = rounded_up(bytes, line);
  const std::lock_guard lock(mutex_);
  MW_ASSERT(begin % line == 0 && size > 0 && begin + size <= bytes_,
            "a part that is freed was allocated from this pool");
  const auto next = free_.lower_bound(begin);
  MW_ASSERT(next == free_.end() || begin + size <= next->first,
            "a part is freed once: it does not reach into a free one");
  const bool joins_next = next != free_.end() && next->first == begin + size;
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    MW_ASSERT(before->first + before->second <= begin,
              "a part is freed once: it does not lie in a free one");
    if (before->first + before->second == begin) {
      before->second += size;
      if (joins_next) {
        before->second += next->second;
        free_.erase(next);
      }
      return;
    }
  }
  if (joins_next) {
    // Its node is used again, because memory may be short when a part is given back.
    auto node = free_.extract(next);
    node.key() = begin;
    node.mapped() += size;
    free_.insert(std::move(node));
    return;
  }
  free_.emplace(begin, size);
}

}  // namespace manyworlds::inline v0::detail
