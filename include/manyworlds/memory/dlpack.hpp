/// Tensors of other frameworks, by DLPack: a view of theirs, or one of ours for them.
///
/// The structures below are the ABI of the DLPack specification, version 1
/// (github.com/dmlc/dlpack, Apache-2.0), under names of our own, so that the official
/// `dlpack.h` may be included beside this header. Every function takes either's types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "manyworlds/memory/buffer_view.hpp"

namespace manyworlds::inline v0::dlpack {

inline constexpr std::uint32_t major_version = 1;
inline constexpr std::uint32_t minor_version = 0;
inline constexpr std::uint64_t flag_read_only = 1;

struct version {
  std::uint32_t major;
  std::uint32_t minor;
};

struct device {
  std::int32_t device_type;
  std::int32_t device_id;
};

struct data_type {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

/// `DLTensor`. Strides are in elements; null means C order.
struct tensor {
  void* data;
  dlpack::device device;
  std::int32_t ndim;
  data_type dtype;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};

/// `DLManagedTensor`, the form before DLPack 1.0.
struct managed_tensor {
  tensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(managed_tensor*);
};

/// `DLManagedTensorVersioned`.
struct managed_tensor_versioned {
  dlpack::version version;
  void* manager_ctx;
  void (*deleter)(managed_tensor_versioned*);
  std::uint64_t flags;
  tensor dl_tensor;
};

/// Returns a managed tensor to its producer:
/// `std::unique_ptr<DLManagedTensorVersioned, mw::dlpack::release>`.
struct release {
  template <class Managed>
  void operator()(Managed* managed) const noexcept {
    if (managed != nullptr && managed->deleter != nullptr) managed->deleter(managed);
  }
};

using owned_tensor = std::unique_ptr<managed_tensor_versioned, release>;

/// `DLTensor`, official or ours.
template <class T>
concept plain_tensor = requires(const T& t) {
  t.data, t.device.device_type, t.device.device_id, t.ndim, t.shape, t.strides;
  t.dtype.code, t.dtype.bits, t.dtype.lanes, t.byte_offset;
};

/// `DLManagedTensor` or `DLManagedTensorVersioned`, official or ours.
template <class T>
concept any_managed_tensor = requires(const T& t) {
  requires plain_tensor<decltype(t.dl_tensor)>;
  t.deleter;
};

template <class T>
concept any_tensor = plain_tensor<T> || any_managed_tensor<T>;

/// The tensor's elements, to send. The view owns nothing: the tensor must stay with the
/// caller until the await has ended.
///
/// Contiguous tensors in host memory only (pinned memory is host memory). Anything else,
/// another DLPack major version, vector lanes and types that are none of ours throw
/// std::invalid_argument naming shape, strides, type and device.
template <any_tensor T>
const_buffer_view readable(const T& tensor);

/// The tensor's elements, to receive into. As `readable`, and throws for a tensor marked
/// read-only.
template <any_tensor T>
buffer_view writable(const T& tensor);

/// A tensor over our memory, for another framework. `keep_alive` is let go when the
/// consumer calls the deleter, on the consumer's thread. An empty shape means one
/// dimension. Throws std::invalid_argument when the shape has another number of elements
/// than the view. Hand it over as `release()`; it has the layout of
/// `DLManagedTensorVersioned`.
owned_tensor export_tensor(buffer_view view, std::shared_ptr<void> keep_alive,
                           std::span<const std::int64_t> shape = {});

/// The same, marked read-only.
owned_tensor export_read_only(const_buffer_view view,
                              std::shared_ptr<const void> keep_alive,
                              std::span<const std::int64_t> shape = {});

// ---------------------------------------------------------------------------------------

namespace detail {

buffer_view import_tensor(const tensor& source);
[[noreturn]] void refuse_version(version seen);
[[noreturn]] void refuse_writing(const tensor& source);

template <class T>
concept versioned = requires(const T& t) {
  t.version.major, t.version.minor, t.flags;
};

template <plain_tensor T>
tensor copy_of(const T& from) noexcept {
  return {from.data,
          {static_cast<std::int32_t>(from.device.device_type), from.device.device_id},
          from.ndim,
          {from.dtype.code, from.dtype.bits, from.dtype.lanes},
          from.shape,
          from.strides,
          from.byte_offset};
}

template <any_managed_tensor T>
tensor copy_of(const T& from) {
  if constexpr (versioned<T>) {
    // Of another major version nothing behind the deleter may be looked at.
    if (from.version.major != major_version) {
      refuse_version({from.version.major, from.version.minor});
    }
  }
  return copy_of(from.dl_tensor);
}

}  // namespace detail

template <any_tensor T>
const_buffer_view readable(const T& tensor) {
  return detail::import_tensor(detail::copy_of(tensor));
}

template <any_tensor T>
buffer_view writable(const T& tensor) {
  const auto source = detail::copy_of(tensor);
  if constexpr (detail::versioned<T>) {
    if ((tensor.flags & flag_read_only) != 0) detail::refuse_writing(source);
  }
  return detail::import_tensor(source);
}

}  // namespace manyworlds::inline v0::dlpack
