// Pool memory: what a shared pool is made of. Not for users: for the pool, its buffers
// and the links that tell peers of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "manyworlds/config.hpp"

namespace manyworlds::inline v0 {

class pool_registry;

/// One mapping of a sealed memfd, and which parts of it are in use. It goes with the last
/// of its pool, its buffers and the links that are just passing it to a peer.
///
/// The seals keep peers, who get the descriptor, from cutting it off under each other and
/// from writing to it. Any thread.
class pool_memory {
 public:
  /// Throws std::bad_alloc where there is no address space for it.
  pool_memory(std::shared_ptr<pool_registry> known_to, std::size_t bytes);
  pool_memory(const pool_memory&) = delete;
  pool_memory& operator=(const pool_memory&) = delete;
  ~pool_memory();

  /// Pages are had in pieces of this size, by its owner and by those who map it.
  static constexpr std::size_t granule = std::size_t{256} * 1024;
  static constexpr std::size_t line = 64;

  /// Its name among the pools of its registry; never used again.
  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  [[nodiscard]] std::byte* base() const noexcept { return base_; }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }
  /// -1 where the machine refused: it is memory of this process alone then.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  [[nodiscard]] const std::string& refusal() const noexcept { return refusal_; }

  [[nodiscard]] bool contains(const void* first, std::size_t bytes) const noexcept;
  [[nodiscard]] std::size_t offset_of(const void* first) const noexcept;

  /// The lowest free part, so that memory is touched only as far as it is needed at once;
  /// on a line of its own. Nothing if none is large enough, or there is no memory for it.
  [[nodiscard]] std::byte* allocate(std::size_t bytes) noexcept;
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
  /// Offset and bytes of each free part; no two of them touch.
  std::map<std::size_t, std::size_t> free_;
  std::size_t reserved_ = 0;
};

}  // namespace manyworlds::inline v0
