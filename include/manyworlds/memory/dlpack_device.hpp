/// DLPack for device memory: what `dlpack.hpp` does, for CUDA tensors.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "manyworlds/memory/device_view.hpp"
#include "manyworlds/memory/dlpack.hpp"

namespace manyworlds::inline v0::dlpack {

/// Returns the tensor's elements, to send, ordered on `on`. Precondition: the work that
/// writes them is on that stream already. A framework does that when asked for the tensor
/// with that stream (`__dlpack__(stream=...)`). Lifetime: the view owns nothing; the
/// caller keeps the tensor until the await has ended.
///
/// It takes contiguous tensors of `device` only, in its memory or managed (kDLCUDA,
/// kDLCUDAManaged). Errors: std::invalid_argument naming shape, strides, type and device
/// for anything else; for another device it names both.
template <any_tensor T>
const_device_view readable_on_device(const T& tensor, int device, device_stream on);

/// Returns the tensor's elements, to receive into. It takes what `readable_on_device`
/// takes. Errors: those of `readable_on_device`; std::invalid_argument for a tensor
/// marked read-only.
template <any_tensor T>
device_view writable_on_device(const T& tensor, int device, device_stream on);

/// Returns the tensor's bytes, to send. It takes the elements that `readable_bytes` takes
/// of host memory, and otherwise what `readable_on_device` takes. Errors: those of
/// `readable_on_device` and `readable_bytes`.
template <any_tensor T>
const_device_view readable_bytes_on_device(const T& tensor, int device, device_stream on);

/// Returns the tensor's bytes, to receive into. It takes what `readable_bytes_on_device`
/// takes. Errors: those of `readable_bytes_on_device`; std::invalid_argument for a tensor
/// marked read-only.
template <any_tensor T>
device_view writable_bytes_on_device(const T& tensor, int device, device_stream on);

/// Makes a tensor over our memory on `device`, for another framework, as `export_tensor`
/// does of host memory. The consumer orders its work on the view's stream. Errors: those
/// of `export_tensor` of host memory.
owned_tensor export_tensor(device_view view, int device, std::shared_ptr<void> keep_alive,
                           std::span<const std::int64_t> shape = {});

/// Makes the same, marked read-only. Errors: those of `export_tensor`.
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
