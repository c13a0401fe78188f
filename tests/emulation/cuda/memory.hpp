// The memory that CUDA knows of: devices' (here the process's own), pinned, and
// registered.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

namespace emulated {

// What each device says it has.
constexpr std::size_t device_memory = std::size_t{80} << 30;

// Freed memory holds this until it is given out again.
constexpr unsigned char poison = 0xDB;

struct memory_pool {
  memory_pool(int device_, bool is_default_) : device(device_), is_default(is_default_) {}

  const int device;
  const bool is_default;

  std::mutex mutex;
  std::set<int> admitted;  // devices that reach its memory, beside its own
  std::map<cudaMemPoolAttr, std::uint64_t> chosen;
  std::uint64_t used = 0;
  std::uint64_t most_used = 0;
};

using pool_ptr = std::shared_ptr<memory_pool>;

enum class memory_kind { device, pinned, registered };

struct memory_block {
  unsigned char* base = nullptr;
  std::size_t size = 0;
  memory_kind kind = memory_kind::device;
  int device = 0;
  pool_ptr pool;             // of stream-ordered allocations
  bool being_freed = false;  // by cudaFreeAsync, when the stream gets there
};

class memory_map {
 public:
  // Null when there is no room. `pool` is that of a stream-ordered allocation.
  void* allocate(std::size_t size, memory_kind kind, int device, pool_ptr pool = nullptr);

  // False when a part of it is known already.
  bool register_host(void* base, std::size_t size, int device);
  bool unregister_host(void* base);

  std::optional<memory_block> find(const void* inside) const;
  // Whether all of it lies in one block.
  bool holds(const void* begin, std::size_t size) const;

  // False when a stream-ordered allocation does not begin there, or is being freed
  // already.
  bool begin_free(void* base);
  // Poisons and frees the block that begins there.
  void free(void* base);

  std::size_t used(int device) const;
  void free_all_of(int device);

 private:
  using blocks = std::map<std::uintptr_t, memory_block>;

  blocks::const_iterator at(const void* inside) const;
  void retire(const memory_block& freed);
  void evict();

  mutable std::mutex mutex_;
  blocks blocks_;
  std::map<int, std::size_t> used_;
  std::deque<memory_block> quarantine_;
  std::size_t quarantined_ = 0;
};

}  // namespace emulated
