/// Device views: device memory with its count, its element type and its stream.
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>

#include "manyworlds/memory/buffer_view.hpp"

struct CUstream_st;

namespace manyworlds::inline v0 {

/// The caller's CUDA stream (`cudaStream_t`), which is not owned.
///
/// Null means none, which no operation accepts: CUDA's null stream is either of two, so
/// say `cudaStreamLegacy`. `cudaStreamPerThread` serves only worlds that launch on the
/// reactor's thread, and means that thread's stream.
class device_stream {
 public:
  constexpr device_stream() noexcept = default;
  constexpr device_stream(CUstream_st* handle) noexcept : handle_(handle) {}
  // A literal 0 may be read as a rank, a device or a stream, so it is refused.
  device_stream(int) = delete;
  device_stream(std::nullptr_t) = delete;

  [[nodiscard]] constexpr CUstream_st* handle() const noexcept { return handle_; }
  /// Returns whether there is a stream.
  [[nodiscard]] constexpr explicit operator bool() const noexcept {
    return handle_ != nullptr;
  }
  friend constexpr bool operator==(device_stream, device_stream) noexcept = default;

 private:
  CUstream_st* handle_ = nullptr;
};

/// Elements in device memory that may be read. A send takes it.
///
///     const mw::const_device_view weights(p, 1 << 20, stream);
///     co_await w.send(weights, mw::to{1});
///     co_await w.send(weights.slice(0, 1024), mw::to{2});
///
/// Lifetime: it owns nothing; the memory must live until the await on the operation ends.
/// The stream orders the operation among the caller's own work: it begins after work that
/// was enqueued there before. Work that is enqueued once the await (or `enqueue()`) has
/// ended comes after it.
class const_device_view {
 public:
  constexpr const_device_view() noexcept = default;

  /// Makes a view of `count` elements at `data`. Errors: std::invalid_argument for a null
  /// pointer with elements, and for more bytes than an address space has.
  template <element T>
  const_device_view(const T* data, std::size_t count, device_stream on)
      : const_device_view(data, count, dtype_of_v<T>, on) {}

  /// Makes a view of `count` elements at `data`. Errors: std::invalid_argument for a null
  /// pointer with elements, for an invalid type, and for more bytes than an address space
  /// has.
  const_device_view(const void* data, std::size_t count, dtype type, device_stream on)
      : data_{data}, count_{count}, stream_{on}, type_{type} {
    detail::check_view(data, count, type);
  }

  constexpr const void* data() const noexcept { return data_; }
  /// Counts elements, not bytes.
  constexpr std::size_t count() const noexcept { return count_; }
  constexpr dtype type() const noexcept { return type_; }
  constexpr device_stream stream() const noexcept { return stream_; }
  constexpr std::size_t size_bytes() const noexcept { return count_ * size_of(type_); }
  constexpr bool empty() const noexcept { return count_ == 0; }

  /// Returns `count` elements from `offset` on. Errors: std::out_of_range beyond the end.
  const_device_view slice(std::size_t offset, std::size_t count) const {
    detail::check_slice(offset, count, count_);
    return {static_cast<const std::byte*>(data_) + offset * size_of(type_), count, type_,
            stream_};
  }

 protected:
  template <class View>
  friend class detail::basic_gather_list;
  constexpr const_device_view by_member() const noexcept { return *this; }

 private:
  const void* data_ = nullptr;
  std::size_t count_ = 0;
  device_stream stream_;
  dtype type_ = dtype::uint8;
};

/// Elements in device memory that may be written. A receive or a collective takes it. It
/// is also a `const_device_view`, and adds no member.
///
///     const mw::device_view kv(p, 1 << 20, stream);
///     co_await w.recv(kv, mw::from{0});
///     fill_by_kernel(p, stream.handle());  // on that stream: it sees the data
class device_view : public const_device_view {
 public:
  constexpr device_view() noexcept = default;

  /// Makes a view of `count` elements at `data`. Errors: those of `const_device_view`.
  template <element T>
  requires(!std::is_const_v<T>) device_view(T* data, std::size_t count, device_stream on)
      : const_device_view(data, count, on) {}

  /// Makes a view of `count` elements at `data`. Errors: those of `const_device_view`.
  device_view(void* data, std::size_t count, dtype type, device_stream on)
      : const_device_view(data, count, type, on) {}

  constexpr void* data() const noexcept {
    return const_cast<void*>(const_device_view::data());
  }
  /// Works as `const_device_view::slice`. Errors: std::out_of_range beyond the end.
  device_view slice(std::size_t offset, std::size_t count) const {
    detail::check_slice(offset, count, this->count());
    return {static_cast<std::byte*>(data()) + offset * size_of(type()), count, type(),
            stream()};
  }

 private:
  template <class View>
  friend class detail::basic_gather_list;
  constexpr device_view by_member() const noexcept { return *this; }
};

}  // namespace manyworlds::inline v0
