/// DLPack: views of other frameworks' tensors, and tensors of our memory for them.
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

/// The version of the specification that tensors of ours have.
inline constexpr std::uint32_t major_version = 1;
inline constexpr std::uint32_t minor_version = 0;
/// Marks a tensor that may not be written.
inline constexpr std::uint64_t flag_read_only = 1;
/// Marks (since version 1.1) that elements of less than a byte take one byte each, and
/// are not packed.
inline constexpr std::uint64_t flag_padded = 4;

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
  /// Releases the tensor; called by the consumer, once.
  void (*deleter)(managed_tensor*);
};

/// `DLManagedTensorVersioned`.
struct managed_tensor_versioned {
  dlpack::version version;
  void* manager_ctx;
  /// Releases the tensor; called by the consumer, once.
  void (*deleter)(managed_tensor_versioned*);
  std::uint64_t flags;
  tensor dl_tensor;
};

/// Returns a managed tensor to its producer:
/// `std::unique_ptr<DLManagedTensorVersioned, mw::dlpack::release>`.
struct release {
  /// Calls the deleter of a tensor, if it has one.
  template <class Managed>
  void operator()(Managed* managed) const noexcept {
    if (managed != nullptr && managed->deleter != nullptr) managed->deleter(managed);
  }
};

/// Owns a tensor until it is released to another framework.
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

/// Returns the tensor's elements, to send. Lifetime: the view owns nothing; the caller
/// keeps the tensor until the await has ended.
///
/// It takes contiguous tensors in host memory only (pinned memory is host memory).
/// Elements that no collective can compute with (bool, 16-bit integers, complex numbers,
/// other 8-bit floats and less than a byte) are sent as `readable_bytes`.
///
/// Errors: std::invalid_argument naming shape, strides, type and device, for other
/// memory, another DLPack major version, vector lanes and types that are no `dtype`.
template <any_tensor T>
const_buffer_view readable(const T& tensor);

/// Returns the tensor's elements, to receive into. It takes what `readable` takes.
/// Errors: those of `readable`; std::invalid_argument for a tensor marked read-only.
template <any_tensor T>
buffer_view writable(const T& tensor);

/// Returns the tensor's bytes, to send, for code that only passes elements on. The
/// receiver takes them by `writable_bytes` of a tensor of the same type and shape.
///
/// It takes what `readable` takes, but of every element type except opaque handles, and
/// of vectors of any number of lanes. Elements of less than a byte are packed, as the
/// specification says (their number of bits is rounded up to whole bytes once, behind the
/// last). In a tensor that is marked as padded, each takes a byte.
///
/// Errors: those of `readable`; std::invalid_argument for integers and bools of less than
/// a byte in a tensor that is older than DLPack 1.1, or has no version. It does not say
/// whether they are packed.
template <any_tensor T>
const_buffer_view readable_bytes(const T& tensor);

/// Returns the tensor's bytes, to receive into. It takes what `readable_bytes` takes.
/// Errors: those of `readable_bytes`; std::invalid_argument for a tensor marked
/// read-only.
template <any_tensor T>
buffer_view writable_bytes(const T& tensor);

/// Makes a tensor over our memory, for another framework. Hand it over as `release()`; it
/// has the layout of `DLManagedTensorVersioned`. An empty shape means one dimension.
///
/// Lifetime: `keep_alive` is released when the consumer calls the deleter, on the
/// consumer's thread. Errors: std::invalid_argument when the shape has another number of
/// elements than the view.
owned_tensor export_tensor(buffer_view view, std::shared_ptr<void> keep_alive,
                           std::span<const std::int64_t> shape = {});

/// Makes the same, marked read-only. Errors: those of `export_tensor`.
owned_tensor export_read_only(const_buffer_view view,
                              std::shared_ptr<const void> keep_alive,
                              std::span<const std::int64_t> shape = {});

// ---------------------------------------------------------------------------------------

namespace detail {

/// The layout of elements of less than a byte, if a tensor says it.
enum class packing : std::uint8_t { unsaid, packed, padded };

buffer_view import_tensor(const tensor& source);
buffer_view import_bytes(const tensor& source, packing elements);
[[noreturn]] void refuse_version(version seen);
[[noreturn]] void refuse_writing(const tensor& source);

template <class T>
concept versioned = requires(const T& t) {
  t.version.major, t.version.minor, t.flags;
};

template <any_tensor T>
packing packing_of(const T& from) noexcept {
  if constexpr (versioned<T>) {
    if ((from.flags & flag_padded) != 0) return packing::padded;
    const bool says_it = from.version.major > 1 || from.version.minor >= 1;
    return says_it ? packing::packed : packing::unsaid;
  } else {
    return packing::unsaid;
  }
}

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
    // In another major version nothing behind the deleter may be read.
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

namespace detail {

template <any_tensor T>
tensor writable_copy_of(const T& from) {
  const auto source = copy_of(from);
  if constexpr (versioned<T>) {
    if ((from.flags & flag_read_only) != 0) refuse_writing(source);
  }
  return source;
}

}  // namespace detail

template <any_tensor T>
buffer_view writable(const T& tensor) {
  return detail::import_tensor(detail::writable_copy_of(tensor));
}

template <any_tensor T>
const_buffer_view readable_bytes(const T& tensor) {
  const auto source = detail::copy_of(tensor);
  return detail::import_bytes(source, detail::packing_of(tensor));
}

template <any_tensor T>
buffer_view writable_bytes(const T& tensor) {
  const auto source = detail::writable_copy_of(tensor);
  return detail::import_bytes(source, detail::packing_of(tensor));
}

}  // namespace manyworlds::inline v0::dlpack
