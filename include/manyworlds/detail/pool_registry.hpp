// Pool registry: finds the shared pools of one runtime by the addresses in them. It is
// internal: users only pass it from `runtime::pools()` to `shared_pool`.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "manyworlds/detail/pool_memory.hpp"

namespace manyworlds::inline v0 {
class shared_pool;
}  // namespace manyworlds::inline v0

namespace manyworlds::inline v0::detail {

/// The pools of one runtime. A send asks it whether a peer can map its memory. It owns no
/// pool. Thread: any.
class pool_registry {
 public:
  pool_registry() = default;
  pool_registry(const pool_registry&) = delete;
  pool_registry& operator=(const pool_registry&) = delete;

  /// Returns the pool in which all of these bytes lie; null if there is none.
  [[nodiscard]] std::shared_ptr<pool_memory> find(const void* first,
                                                  std::size_t bytes) const;
  [[nodiscard]] bool has(std::uint64_t id) const;
  /// Returns a number that changes with every pool that ends.
  [[nodiscard]] std::uint64_t removals() const noexcept {
    return removals_.load(std::memory_order_acquire);
  }

 private:
  friend shared_pool;
  friend class pool_memory;

  [[nodiscard]] std::uint64_t next_id() noexcept { return ids_.fetch_add(1) + 1; }
  void add(const std::shared_ptr<pool_memory>& pool);
  void remove(const pool_memory& pool) noexcept;

  mutable std::mutex mutex_;
  /// The pools by their first byte.
  std::map<std::uintptr_t, std::weak_ptr<pool_memory>> pools_;
  std::map<std::uint64_t, std::uintptr_t> by_id_;
  /// The number of pools, so that without any a send pays one load.
  std::atomic<std::size_t> count_{0};
  std::atomic<std::uint64_t> removals_{0};
  std::atomic<std::uint64_t> ids_{0};
};

}  // namespace manyworlds::inline v0::detail
