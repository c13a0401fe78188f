// Pool memory: the memory of a shared pool. It is internal: the pool, its buffers and the
// links that tell peers of it use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0::detail {

class pool_registry;

/// One mapping of a sealed memfd, and the record of which parts are in use. Lifetime: it
/// ends with the last of its pool, its buffers and the links that are passing it to a
/// peer.
///
/// Peers get the descriptor. The seals keep them from cutting it off under each other and
/// from writing to it. Thread: any.
class pool_memory {
 public:
  /// Maps the memory. Throws std::bad_alloc where there is no address space for it.
  pool_memory(std::shared_ptr<pool_registry> known_to, std::size_t bytes);
  pool_memory(const pool_memory&) = delete;
  pool_memory& operator=(const pool_memory&) = delete;
  ~pool_memory();

  /// The owner, and the peers that map it, take pages in pieces of this size.
  static constexpr std::size_t granule = std::size_t{256} * 1024;
  static constexpr std::size_t line = 64;
  static_assert(granule % line == 0, "a pool is a whole number of lines");

  /// Returns its name among the pools of its registry, which is never used again.
  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  [[nodiscard]] std::byte* base() const noexcept { return base_; }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }
  /// Returns -1 where the machine refused: it is memory of this process alone then.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  [[nodiscard]] const std::string& refusal() const noexcept { return refusal_; }

  [[nodiscard]] bool contains(const void* first, std::size_t bytes) const noexcept;
  [[nodiscard]] std::size_t offset_of(const void* first) const noexcept;

  /// Takes the lowest free part, so that memory is touched only as far as it is needed at
  /// once. It begins a line. Returns null if no part is large enough, or there is no
  /// memory for it.
  [[nodiscard]] std::byte* allocate(std::size_t bytes) noexcept;
  /// Gives a part back. Precondition: `allocate(bytes)` returned `first`.
  void free(std::byte* first, std::size_t bytes) noexcept;

 private:
  void map();
  [[nodiscard]] bool map_shared();
  [[nodiscard]] bool reserve(std::size_t end) noexcept;

  const std::shared_ptr<pool_registry> known_to_;
  const std::size_t bytes_;
  std::uint64_t id_ = 0;
  int descriptor_ = -1;
  std::byte* base_ = nullptr;
  std::string refusal_;

  std::mutex mutex_;
  /// The offset and bytes of each free part; no two of them touch.
  std::map<std::size_t, std::size_t> free_;
  std::size_t reserved_ = 0;
};

}  // namespace manyworlds::inline v0::detail
