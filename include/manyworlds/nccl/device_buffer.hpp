// Device buffers: device memory that is given back by itself.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "manyworlds/memory/device_view.hpp"
#include "manyworlds/nccl/device_pool.hpp"

namespace manyworlds::inline v0 {

/// Holds elements in device memory, of a type known at run time. Movable: what was
/// moved from is empty.
///
///     mw::untyped_device_buffer kv(pool, 4096, mw::dtype::bfloat16, stream);
///     co_await w.recv(kv, mw::from{0});
///     co_await w.send(kv.slice(0, 1024), mw::to{1});
///
/// Memory is taken and given back in the order of one stream, without waiting for it:
/// work enqueued there after construction may use it, and so may what was enqueued
/// there before destruction. Work that uses it on another stream must have ended by
/// then, as an awaited operation has. The stream must outlive the buffer. Contents are
/// not set.
///
/// Where a device view is wanted a named buffer is one, on its own stream; a temporary is
/// refused, since it would be gone before the await ends.
class untyped_device_buffer {
 public:
  /// Makes a buffer with no elements and no stream.
  untyped_device_buffer() noexcept = default;

  /// Takes memory of the pool. Errors: device_error where CUDA refuses or the stream is
  /// being captured; std::invalid_argument for no stream, and for more elements than an
  /// address space has.
  untyped_device_buffer(const device_pool& pool, std::size_t count, dtype type,
                        device_stream on);

  untyped_device_buffer(untyped_device_buffer&& other) noexcept
      : pool_(std::move(other.pool_)), view_(std::exchange(other.view_, device_view())) {}
  /// What it held before is given back at once.
  untyped_device_buffer& operator=(untyped_device_buffer&& other) noexcept {
    if (this == &other) return *this;
    free();
    pool_ = std::move(other.pool_);
    view_ = std::exchange(other.view_, device_view());
    return *this;
  }
  ~untyped_device_buffer() { free(); }

  [[nodiscard]] void* data() noexcept { return view_.data(); }
  [[nodiscard]] const void* data() const noexcept { return view_.data(); }
  /// Returns the number of elements, not of bytes.
  [[nodiscard]] std::size_t count() const noexcept { return view_.count(); }
  [[nodiscard]] dtype type() const noexcept { return view_.type(); }
  [[nodiscard]] device_stream stream() const noexcept { return view_.stream(); }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return view_.size_bytes(); }
  [[nodiscard]] bool empty() const noexcept { return view_.empty(); }

  /// Returns a view for an operation that is ordered on the buffer's stream.
  [[nodiscard]] device_view view() & noexcept { return view_; }
  [[nodiscard]] const_device_view view() const& noexcept { return view_; }
  void view() const&& = delete;

  /// Returns a view for an operation that is ordered on another stream. Errors: none.
  [[nodiscard]] device_view view(device_stream on) & {
    return {view_.data(), count(), type(), on};
  }
  [[nodiscard]] const_device_view view(device_stream on) const& {
    return {view_.data(), count(), type(), on};
  }
  void view(device_stream) const&& = delete;

  /// Returns `count` elements from `offset` on. Errors: std::out_of_range beyond the end.
  [[nodiscard]] device_view slice(std::size_t offset, std::size_t count) & {
    return view_.slice(offset, count);
  }
  [[nodiscard]] const_device_view slice(std::size_t offset, std::size_t count) const& {
    return view_.slice(offset, count);
  }
  void slice(std::size_t, std::size_t) const&& = delete;

  /// Gives the view that `view` returns.
  operator device_view() & noexcept { return view_; }
  /// Gives the view that `view` returns.
  operator const_device_view() & noexcept { return view_; }
  operator const_device_view() const& noexcept { return view_; }
  // A temporary would be gone before the await ends: give it a name.
  operator device_view() const&& = delete;
  operator const_device_view() const&& = delete;

 private:
  void free() noexcept;

  std::shared_ptr<detail::nccl::pool_state> pool_;
  device_view view_;
};

/// Holds elements in device memory: `device_buffer<float> x{pool, 1 << 20, stream}`.
/// See `untyped_device_buffer`, which it is as well.
///
///     mw::device_buffer<float> x(pool, 1 << 20, stream);
///     fill_by_kernel(x.data(), stream.handle());
///     co_await w.all_reduce(x, mw::sum);
template <element T>
class device_buffer : public untyped_device_buffer {
 public:
  using value_type = T;

  device_buffer() noexcept = default;
  /// Takes memory of the pool. Errors: those of `untyped_device_buffer`.
  device_buffer(const device_pool& pool, std::size_t count, device_stream on)
      : untyped_device_buffer(pool, count, dtype_of_v<T>, on) {}

  /// Returns the address, which the host must not read.
  [[nodiscard]] T* data() noexcept {
    return static_cast<T*>(untyped_device_buffer::data());
  }
  [[nodiscard]] const T* data() const noexcept {
    return static_cast<const T*>(untyped_device_buffer::data());
  }
};

}  // namespace manyworlds::inline v0
