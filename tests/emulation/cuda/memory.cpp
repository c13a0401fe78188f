#include "memory.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMULATED_UNDER_ASAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define EMULATED_UNDER_ASAN 1
#endif

namespace emulated {
namespace {

constexpr std::size_t alignment = 512;

// Of a larger block only the beginning is poisoned, so that a free costs no gigabytes.
constexpr std::size_t most_poisoned = std::size_t{1} << 20;

// Freed blocks are not given out again at once, so that who still reads one finds poison,
// and who still writes to one is found out. The address sanitizer does both better.
#ifdef EMULATED_UNDER_ASAN
constexpr std::size_t most_quarantined = 0;
#else
constexpr std::size_t most_quarantined = std::size_t{16} << 20;
#endif

std::uintptr_t number(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address);
}

std::size_t poisoned(const memory_block& block) {
  return std::min(block.size, most_poisoned);
}

void check_untouched(const memory_block& block) {
  const auto untouched = [](unsigned char each) { return each == poison; };
  if (std::all_of(block.base, block.base + poisoned(block), untouched)) return;
  std::fprintf(stderr, "emulated CUDA: freed memory was written to (%p, %zu bytes)\n",
               static_cast<void*>(block.base), block.size);
  std::abort();
}

}  // namespace

void* memory_map::allocate(std::size_t size, memory_kind kind, int device,
                           pool_ptr pool) {
  if (size > device_memory) return nullptr;
  const std::size_t room = (size + alignment - 1) / alignment * alignment;
  std::lock_guard hold(mutex_);
  if (kind == memory_kind::device && used_[device] + size > device_memory) return nullptr;
  auto* base = static_cast<unsigned char*>(std::aligned_alloc(alignment, room));
  if (base == nullptr) return nullptr;
  // Contents are not set: one that takes them for zeros is found out.
  if (kind == memory_kind::device) {
    std::memset(base, poison, std::min(size, most_poisoned));
    used_[device] += size;
  }
  if (pool) {
    std::lock_guard hold_pool(pool->mutex);
    pool->used += size;
    pool->most_used = std::max(pool->most_used, pool->used);
  }
  blocks_[number(base)] = {base, size, kind, device, std::move(pool), false};
  return base;
}

bool memory_map::register_host(void* base, std::size_t size, int device) {
  std::lock_guard hold(mutex_);
  const auto next = blocks_.lower_bound(number(base));
  if (next != blocks_.end() && next->first < number(base) + size) return false;
  if (at(base) != blocks_.end()) return false;
  blocks_[number(base)] = {static_cast<unsigned char*>(base),
                           size,
                           memory_kind::registered,
                           device,
                           nullptr,
                           false};
  return true;
}

bool memory_map::unregister_host(void* base) {
  std::lock_guard hold(mutex_);
  const auto found = blocks_.find(number(base));
  if (found == blocks_.end() || found->second.kind != memory_kind::registered)
    return false;
  blocks_.erase(found);
  return true;
}

memory_map::blocks::const_iterator memory_map::at(const void* inside) const {
  auto after = blocks_.upper_bound(number(inside));
  if (after == blocks_.begin()) return blocks_.end();
  --after;
  const bool is_inside = number(inside) < after->first + after->second.size;
  return is_inside ? after : blocks_.end();
}

std::optional<memory_block> memory_map::find(const void* inside) const {
  std::lock_guard hold(mutex_);
  const auto found = at(inside);
  if (found == blocks_.end()) return std::nullopt;
  return found->second;
}

bool memory_map::holds(const void* begin, std::size_t size) const {
  std::lock_guard hold(mutex_);
  const auto found = at(begin);
  return found != blocks_.end() &&
         number(begin) + size <= found->first + found->second.size;
}

bool memory_map::begin_free(void* base) {
  std::lock_guard hold(mutex_);
  const auto found = blocks_.find(number(base));
  if (found == blocks_.end() || !found->second.pool || found->second.being_freed)
    return false;
  found->second.being_freed = true;
  return true;
}

void memory_map::free(void* base) {
  std::lock_guard hold(mutex_);
  const auto found = blocks_.find(number(base));
  if (found == blocks_.end()) return;
  retire(found->second);
  blocks_.erase(found);
}

void memory_map::retire(const memory_block& freed) {
  if (freed.kind == memory_kind::device) used_[freed.device] -= freed.size;
  if (freed.pool) {
    std::lock_guard hold_pool(freed.pool->mutex);
    freed.pool->used -= freed.size;
  }
  std::memset(freed.base, poison, poisoned(freed));
  quarantine_.push_back(freed);
  quarantine_.back().pool = nullptr;
  quarantined_ += freed.size;
  while (quarantined_ > most_quarantined) evict();
}

void memory_map::evict() {
  const memory_block oldest = quarantine_.front();
  quarantine_.pop_front();
  quarantined_ -= oldest.size;
  check_untouched(oldest);
  std::free(oldest.base);
}

std::size_t memory_map::used(int device) const {
  std::lock_guard hold(mutex_);
  const auto found = used_.find(device);
  return found == used_.end() ? 0 : found->second;
}

void memory_map::free_all_of(int device) {
  std::lock_guard hold(mutex_);
  for (auto at = blocks_.begin(); at != blocks_.end();) {
    if (at->second.device != device) {
      ++at;
      continue;
    }
    if (at->second.kind != memory_kind::registered) retire(at->second);
    at = blocks_.erase(at);
  }
}

}  // namespace emulated
