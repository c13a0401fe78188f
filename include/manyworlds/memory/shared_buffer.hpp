/// Shared buffers: host memory that peers of the same host map and copy from, also where
/// they may not read a process's memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "manyworlds/detail/access.hpp"
#include "manyworlds/detail/pool_registry.hpp"
#include "manyworlds/memory/dtype.hpp"

namespace manyworlds::inline v0 {

/// Memory from a `shared_pool`, which is given back when this is destroyed. It is
/// movable, and usable wherever host memory is: it is a range of bytes, and `as<T>()` a
/// span.
///
///     mw::shared_pool pool(rt.pools(), 64 << 20);
///     mw::shared_buffer kv = pool.allocate(1 << 20);
///     const std::span<float> x = kv.as<float>();
///     co_await w.send(x, mw::to{1});  // the peer copies it out of the pool
///
/// Lifetime: it keeps its pool's memory, also when the pool or the runtime is gone. As
/// with any memory, its sends and receives must end before it is freed. A forked child
/// must not touch it: the memory is not there.
class shared_buffer {
 public:
  using value_type = std::byte;

  shared_buffer() noexcept = default;
  shared_buffer(shared_buffer&& other) noexcept
      : pool_(std::move(other.pool_)), bytes_(std::exchange(other.bytes_, {})) {}
  /// Swaps the two: what it held before is given back with `other`.
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

  /// Returns it as elements, without bytes that are left over at its end. Lines are
  /// aligned for every element type.
  template <element T>
  [[nodiscard]] std::span<T> as() const noexcept {
    return {reinterpret_cast<T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }

 private:
  friend struct detail::access;
  shared_buffer(std::shared_ptr<detail::pool_memory> pool,
                std::span<std::byte> bytes) noexcept
      : pool_(std::move(pool)), bytes_(bytes) {}

  std::shared_ptr<detail::pool_memory> pool_;
  std::span<std::byte> bytes_;
};

namespace detail {

/// Allocates for the library itself; users have `shared_pool`. Returns an empty buffer if
/// no free part is large enough, or the machine has no memory for it.
[[nodiscard]] shared_buffer allocate_from(std::shared_ptr<pool_memory> pool,
                                          std::size_t bytes) noexcept;

}  // namespace detail

/// A pool of memory for shared buffers. Address space is taken at once, memory as buffers
/// need it. Copies are the same pool, and a moved-from pool is it too. Thread: any.
///
///     mw::shared_pool pool(rt.pools(), std::size_t{1} << 30);
///     if (!pool.refusal().empty()) std::puts(pool.refusal().c_str());
///     mw::shared_buffer kv = pool.allocate(16 << 20);
///
/// Lifetime: the memory stays until the last copy of the pool and its buffers are gone,
/// which may outlive the runtime. A peer maps a pool read-only the first time that it
/// gets something large from it, and unmaps it soon after the pool is gone. A stopped
/// peer keeps it meanwhile. Few large pools are better than many small ones: a peer maps
/// at most 64 at a time.
///
/// Where the machine refuses (memfd_create, seals) the memory is not shared: everything
/// works as with any other memory, and `refusal` says why.
class shared_pool {
 public:
  /// Makes a pool for worlds of one runtime; `known_to` is its `pools()`. Errors:
  /// std::invalid_argument for no bytes or a null `known_to`; std::bad_alloc without
  /// address space.
  shared_pool(std::shared_ptr<detail::pool_registry> known_to, std::size_t bytes);
  // A move copies, so that there is no pool without memory.
  shared_pool(const shared_pool&) noexcept = default;
  shared_pool& operator=(const shared_pool&) noexcept = default;
  ~shared_pool() = default;

  /// Allocates a buffer. Errors: std::bad_alloc if no free part is large enough, or the
  /// machine has no memory for it.
  [[nodiscard]] shared_buffer allocate(std::size_t bytes);

  [[nodiscard]] std::size_t size() const noexcept { return memory_->size(); }
  /// Says why its memory is not shared; empty if it is.
  [[nodiscard]] const std::string& refusal() const noexcept { return memory_->refusal(); }

 private:
  std::shared_ptr<detail::pool_memory> memory_;
};

}  // namespace manyworlds::inline v0
