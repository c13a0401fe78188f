// Device pool: where device buffers get their memory.
#pragma once

#include <cstddef>
#include <memory>

#include "manyworlds/nccl/device_error.hpp"

namespace manyworlds::inline v0 {

namespace detail::nccl {
class pool_state;
}

/// Owns a stream-ordered memory pool on one CUDA device; the device's default pool,
/// which is the whole process's, stays as it is. Copies are the same pool, as is what
/// was moved from. It goes with the last of its copies and buffers. Thread: any.
///
///     mw::device_pool pool(0);
///     mw::owned_stream stream(0);
///     mw::device_buffer<float> x(pool, 1 << 20, stream);
///
/// What buffers give back stays with the pool for the next ones, since asking the driver
/// stalls other threads that use the device; `trim` returns it.
class device_pool {
 public:
  /// Makes a pool on the device of this CUDA number, and the device's context, which
  /// takes a while the first time in a process. Errors: device_error.
  explicit device_pool(int device);
  // Moving copies, so that there is no pool without memory.
  device_pool(const device_pool&) noexcept = default;
  device_pool& operator=(const device_pool&) noexcept = default;
  ~device_pool() = default;

  [[nodiscard]] int device() const noexcept { return device_; }
  /// Returns the bytes that buffers have, as CUDA counts them. Errors: device_error.
  [[nodiscard]] std::size_t used() const;
  /// Returns the bytes that the pool has of the device, used or not. Errors:
  /// device_error.
  [[nodiscard]] std::size_t held() const;
  /// Returns what no buffer uses to the device until at most `keep` bytes are held.
  /// Errors: device_error.
  void trim(std::size_t keep = 0) const;

 private:
  friend class untyped_device_buffer;
  std::shared_ptr<detail::nccl::pool_state> state_;
  int device_;
};

}  // namespace manyworlds::inline v0
