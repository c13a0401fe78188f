/// CUDA tensors of other frameworks, by DLPack: as `dlpack.hpp`, for device memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "manyworlds/memory/device_view.hpp"
#include "manyworlds/memory/dlpack.hpp"

namespace manyworlds::inline v0::dlpack {

/// The tensor's elements, to send, ordered on `on`: what writes them must be on that
/// stream already, which is what a framework does when asked for the tensor with that
/// stream (`__dlpack__(stream=...)`). The view owns nothing: the tensor must stay with
/// the caller until the await has ended.
///
/// Contiguous tensors of `device` only, in its memory or managed (kDLCUDA,
/// kDLCUDAManaged). Anything else throws std::invalid_argument naming shape, strides,
/// type and device; another device both.
template <any_tensor T>
const_device_view readable_on_device(const T& tensor, int device, device_stream on);

/// The tensor's elements, to receive into. As `readable_on_device`, and throws for a
/// tensor marked read-only.
template <any_tensor T>
device_view writable_on_device(const T& tensor, int device, device_stream on);

/// The tensor's bytes, to send, whatever its elements: as `readable_bytes` of host
/// memory, and otherwise as `readable_on_device`.
template <any_tensor T>
const_device_view readable_bytes_on_device(const T& tensor, int device, device_stream on);

/// The tensor's bytes, to receive into. As `readable_bytes_on_device`, and throws for a
/// tensor marked read-only.
template <any_tensor T>
device_view writable_bytes_on_device(const T& tensor, int device, device_stream on);

/// A tensor over our memory on `device`, for another framework. As `export_tensor` of
/// host memory; its consumer orders itself on the view's stream.
owned_tensor export_tensor(device_view view, int device, std::shared_ptr<void> keep_alive,
                           std::span<const std::int64_t> shape = {});

/// The same, marked read-only.
owned_tensor export_read_only(const_device_view view, int device,
                              std::shared_ptr<const void> keep_alive,
                              std::span<const std::int64_t> shape = {});

// ---------------------------------------------------------------------------------------

namespace detail {
device_view import_tensor_on(const tensor& source, int device, device_stream on);
device_view import_bytes_on(const tensor& source, packing elements, int device,
                            device_stream on);
}  // namespace detail

template <any_tensor T>
const_device_view readable_on_device(const T& tensor, int device, device_stream on) {
  return detail::import_tensor_on(detail::copy_of(tensor), device, on);
}

template <any_tensor T>
device_view writable_on_device(const T& tensor, int device, device_stream on) {
  return detail::import_tensor_on(detail::writable_copy_of(tensor), device, on);
}

template <any_tensor T>
const_device_view readable_bytes_on_device(const T& tensor, int device,
                                           device_stream on) {
  const auto source = detail::copy_of(tensor);
  return detail::import_bytes_on(source, detail::packing_of(tensor), device, on);
}

template <any_tensor T>
device_view writable_bytes_on_device(const T& tensor, int device, device_stream on) {
  const auto source = detail::writable_copy_of(tensor);
  return detail::import_bytes_on(source, detail::packing_of(tensor), device, on);
}

}  // namespace manyworlds::inline v0::dlpack
