// Owned stream: a CUDA stream that is destroyed by itself.
#pragma once

#include <utility>

#include "manyworlds/memory/device_view.hpp"
#include "manyworlds/nccl/device_error.hpp"

namespace manyworlds::inline v0 {

/// Owns a stream on one CUDA device, which does not wait for the default stream.
/// Movable. Destroying it does not wait: what was enqueued is still done, so await
/// `on(stream)` first where memory is to be given back.
///
///     mw::owned_stream stream(0);
///     fill_by_kernel(p, stream.handle());
///     co_await mw::on(stream);  // until the kernel has ended
class owned_stream {
 public:
  /// Priorities are CUDA's: 0 is the lowest and the default, lower numbers come first;
  /// one that the device does not have becomes the nearest. Errors: device_error.
  explicit owned_stream(int device, int priority = 0);

  owned_stream(owned_stream&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)), device_(other.device_) {}
  owned_stream& operator=(owned_stream&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(device_, other.device_);
    return *this;
  }
  ~owned_stream() {
    if (handle_) destroy();
  }

  /// Returns the `cudaStream_t`, for your own work.
  [[nodiscard]] CUstream_st* handle() const noexcept { return handle_; }
  [[nodiscard]] int device() const noexcept { return device_; }

  operator device_stream() const& noexcept { return handle_; }
  // A temporary would be gone before the await ends: give it a name.
  operator device_stream() const&& = delete;

 private:
  void destroy() noexcept;

  CUstream_st* handle_ = nullptr;
  int device_ = 0;
};

}  // namespace manyworlds::inline v0
