// Pinned pool: host memory that the GPU copies to and from at full speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <utility>

#include "manyworlds/memory/dtype.hpp"
#include "manyworlds/nccl/device_error.hpp"

namespace manyworlds::inline v0 {

namespace detail::nccl {
class pinned_state;
class pinned_slab;

/// Says where a buffer lies, and what to give it back to.
struct pinned_block {
  std::byte* first = nullptr;
  pinned_slab* slab = nullptr;
};
[[nodiscard]] pinned_block allocate(pinned_state& pool, std::size_t bytes);
void free(pinned_state& pool, pinned_block block) noexcept;
}  // namespace detail::nccl

/// Options of a pool of pinned memory.
struct pinned_pool_options {
  /// The device in the context of which the memory is registered; every device can use
  /// it.
  int device = 0;
  /// Bytes that the pool may have of the machine: pinned memory is never swapped, and
  /// missing everywhere else.
  std::size_t limit = std::size_t{256} << 20;
  /// Bytes that it asks for at a time, for buffers that are smaller.
  std::size_t slab = std::size_t{1} << 20;
};

/// Owns host memory from cudaHostAlloc, for pinned buffers. Copies are the same pool,
/// as is what was moved from. It goes with the last of its copies and buffers. Thread:
/// any.
///
///     mw::pinned_pool pinned({.limit = std::size_t{1} << 30});
///     mw::pinned_buffer<float> host(pinned, 1 << 20);
///     co_await mw::copy(host, on_device);
///
/// Asking the driver takes milliseconds and stalls other threads that use a GPU. So
/// memory is taken in slabs, each for buffers of about one size (at most a quarter more
/// than asked for), and kept when they are given back. `trim` returns unused slabs.
class pinned_pool {
 public:
  /// Makes a pool, which takes no memory yet. Errors: std::invalid_argument for a slab
  /// that is no power of two of at least 4 KiB, or larger than the limit; device_error if
  /// there is no such device.
  explicit pinned_pool(pinned_pool_options options = {});
  // Moving copies, so that there is no pool without memory.
  pinned_pool(const pinned_pool&) noexcept = default;
  pinned_pool& operator=(const pinned_pool&) noexcept = default;
  ~pinned_pool() = default;

  /// Returns the bytes that it has of the machine.
  [[nodiscard]] std::size_t held() const noexcept;
  /// Returns the bytes in buffers, rounded up as above.
  [[nodiscard]] std::size_t used() const noexcept;
  void trim() const noexcept;

 private:
  template <element T>
  friend class pinned_buffer;
  std::shared_ptr<detail::nccl::pinned_state> state_;
};

/// Holds elements in pinned memory: a contiguous range, so usable wherever host memory
/// is. Movable: what was moved from is empty. Contents are not set; it begins at a line
/// of its own.
///
///     mw::pinned_buffer<float> host(pinned, 1 << 20);
///     std::fill(host.begin(), host.end(), 1.0f);
///     co_await mw::copy(on_device, host);
///     co_await w.send(host, mw::to{1});  // it is host memory for a world
///
/// All that the GPU does with the memory must have ended before it is destroyed: unlike
/// a `device_buffer` it is not given back in the order of a stream.
template <element T>
class pinned_buffer {
 public:
  using value_type = T;

  pinned_buffer() noexcept = default;
  /// Takes memory of the pool. Errors: device_error if the pool's limit would be
  /// exceeded, or CUDA refuses; std::invalid_argument for more elements than memory has.
  pinned_buffer(const pinned_pool& pool, std::size_t count) {
    if (count > static_cast<std::size_t>(PTRDIFF_MAX) / sizeof(T))
      throw std::invalid_argument("pinned_buffer: more elements than memory has");
    if (count > 0) block_ = detail::nccl::allocate(*pool.state_, count * sizeof(T));
    pool_ = pool.state_;
    count_ = count;
  }

  pinned_buffer(pinned_buffer&& other) noexcept
      : pool_(std::move(other.pool_)),
        block_(std::exchange(other.block_, {})),
        count_(std::exchange(other.count_, 0)) {}
  /// Swaps: what it held before is given back when `other` is.
  pinned_buffer& operator=(pinned_buffer&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(block_, other.block_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~pinned_buffer() {
    if (block_.slab) detail::nccl::free(*pool_, block_);
  }

  [[nodiscard]] T* data() noexcept { return reinterpret_cast<T*>(block_.first); }
  [[nodiscard]] const T* data() const noexcept {
    return reinterpret_cast<const T*>(block_.first);
  }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] T* begin() noexcept { return data(); }
  [[nodiscard]] T* end() noexcept { return data() + count_; }
  [[nodiscard]] const T* begin() const noexcept { return data(); }
  [[nodiscard]] const T* end() const noexcept { return data() + count_; }
  /// Returns an element. Precondition: `at` is below `size()`.
  [[nodiscard]] T& operator[](std::size_t at) noexcept { return data()[at]; }
  [[nodiscard]] const T& operator[](std::size_t at) const noexcept { return data()[at]; }

 private:
  std::shared_ptr<detail::nccl::pinned_state> pool_;
  detail::nccl::pinned_block block_;
  std::size_t count_ = 0;
};

}  // namespace manyworlds::inline v0
