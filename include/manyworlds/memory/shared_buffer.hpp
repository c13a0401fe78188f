/// Shared buffers: host memory that peers of the same host map and copy from, also where
/// they may not read a process's memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "manyworlds/memory/dtype.hpp"
#include "manyworlds/memory/pool_registry.hpp"

namespace manyworlds::inline v0 {

/// Memory from a `shared_pool`, given back when destroyed. Movable; it keeps its pool's
/// memory, also when the pool or the runtime is gone. Usable wherever host memory is: it
/// is a range of bytes, and `as<T>()` a span.
///
/// Freed while a send or receive of it has not ended, it breaks the same rule as any
/// other memory. A forked child must not touch it: the memory is not there.
class shared_buffer {
 public:
  using value_type = std::byte;

  shared_buffer() noexcept = default;
  shared_buffer(shared_buffer&& other) noexcept
      : pool_(std::move(other.pool_)), bytes_(std::exchange(other.bytes_, {})) {}
  /// Swaps: what it held before is given back when `other` is.
  shared_buffer& operator=(shared_buffer&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~shared_buffer() {
    if (pool_) pool_->free(bytes_.data(), bytes_.size());
  }

  [[nodiscard]] std::byte* data() const noexcept { return bytes_.data(); }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_.size(); }
  [[nodiscard]] std::byte* begin() const noexcept { return bytes_.data(); }
  [[nodiscard]] std::byte* end() const noexcept { return bytes_.data() + bytes_.size(); }
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }

  /// As elements; bytes that are left over at its end are not in it. Lines are aligned
  /// for every element type.
  template <element T>
  [[nodiscard]] std::span<T> as() const noexcept {
    return {reinterpret_cast<T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }

 private:
  friend shared_buffer allocate_from(std::shared_ptr<pool_memory>, std::size_t) noexcept;
  shared_buffer(std::shared_ptr<pool_memory> pool, std::span<std::byte> bytes) noexcept
      : pool_(std::move(pool)), bytes_(bytes) {}

  std::shared_ptr<pool_memory> pool_;
  std::span<std::byte> bytes_;
};

/// Not for users, who have `shared_pool`. Empty if nothing that is free is as large, or
/// the machine has no memory for it.
[[nodiscard]] shared_buffer allocate_from(std::shared_ptr<pool_memory> pool,
                                          std::size_t bytes) noexcept;

/// So much memory for shared buffers. Address space is taken at once, memory as buffers
/// need it; it stays until the last copy of the pool and its buffers are gone, which may
/// outlive the runtime. Copies are the same pool, as is what was moved from. Any thread.
///
/// A peer maps a pool the first time that it is sent something large from it, read-only,
/// and lets go of it soon after the pool is gone: a stopped peer keeps it meanwhile. Few
/// large pools are better than many small ones: of more than 64 at a time a peer maps
/// none.
///
/// Where the machine refuses (memfd_create, seals) the same memory is not shared:
/// everything works as with any other, and `refusal` says why.
class shared_pool {
 public:
  /// For worlds of the runtime whose `pools()` are given. Throws std::invalid_argument
  /// for no bytes or a null `known_to`, std::bad_alloc without address space.
  shared_pool(std::shared_ptr<pool_registry> known_to, std::size_t bytes);
  // Moving copies, so that there is no pool without memory.
  shared_pool(const shared_pool&) noexcept = default;
  shared_pool& operator=(const shared_pool&) noexcept = default;
  ~shared_pool() = default;

  /// Throws std::bad_alloc if no part of it that is free is as large, or the machine has
  /// no memory for it.
  [[nodiscard]] shared_buffer allocate(std::size_t bytes);

  [[nodiscard]] std::size_t size() const noexcept { return memory_->size(); }
  /// Why its memory is not shared; empty if it is.
  [[nodiscard]] const std::string& refusal() const noexcept { return memory_->refusal(); }

 private:
  std::shared_ptr<pool_memory> memory_;
};

}  // namespace manyworlds::inline v0
