#include "manyworlds/detail/pool_registry.hpp"

#include <iterator>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

std::shared_ptr<pool_memory> pool_registry::find(const void* first,
                                                 std::size_t bytes) const {
  // Relaxed: a thread that sends from a pool has made it, or learned of it by other
  // means.
  if (count_.load(std::memory_order_relaxed) == 0) return nullptr;
  std::shared_ptr<pool_memory> pool;
  {
    const std::lock_guard lock(mutex_);
    auto after = pools_.upper_bound(reinterpret_cast<std::uintptr_t>(first));
    if (after == pools_.begin()) return nullptr;
    pool = std::prev(after)->second.lock();
  }
  return pool && pool->contains(first, bytes) ? pool : nullptr;
}

bool pool_registry::has(std::uint64_t id) const {
  const std::lock_guard lock(mutex_);
  return by_id_.contains(id);
}

void pool_registry::add(const std::shared_ptr<pool_memory>& pool) {
  const std::lock_guard lock(mutex_);
  MW_ASSERT(pool->base() && !by_id_.contains(pool->id()), "a pool is added once");
  const auto base = reinterpret_cast<std::uintptr_t>(pool->base());
  pools_[base] = pool;
  by_id_[pool->id()] = base;
  count_.store(by_id_.size(), std::memory_order_relaxed);
}

void pool_registry::remove(const pool_memory& pool) noexcept {
  {
    const std::lock_guard lock(mutex_);
    const auto found = by_id_.find(pool.id());
    if (found == by_id_.end()) return;
    // It is unmapped already, so its addresses may belong to another pool by now.
    const auto at = pools_.find(found->second);
    if (at != pools_.end() && at->second.expired()) pools_.erase(at);
    by_id_.erase(found);
    count_.store(by_id_.size(), std::memory_order_relaxed);
  }
  removals_.fetch_add(1, std::memory_order_release);
}

}  // namespace manyworlds::inline v0::detail
