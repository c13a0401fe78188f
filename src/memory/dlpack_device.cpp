#include "manyworlds/memory/dlpack_device.hpp"

#include <string>
#include <utility>

#include "memory/dlpack_tensor.hpp"

namespace manyworlds::inline v0::dlpack {

namespace {

constexpr std::int32_t cuda = 2;

std::string misplaced(const device& where, int wanted) {
  if (!detail::is_on_cuda(where)) {
    return "is not in CUDA device memory; copy it there first";
  }
  if (where.device_id == wanted) return "";
  return "is on device " + std::to_string(where.device_id) + ", but wanted on device " +
         std::to_string(wanted);
}

}  // namespace

owned_tensor export_tensor(device_view view, int device, std::shared_ptr<void> keep_alive,
                           std::span<const std::int64_t> shape) {
  return detail::export_elements({view.data(), view.count(), view.type()}, {cuda, device},
                                 std::move(keep_alive), shape, 0);
}

owned_tensor export_read_only(const_device_view view, int device,
                              std::shared_ptr<const void> keep_alive,
                              std::span<const std::int64_t> shape) {
  return detail::export_elements(
      {const_cast<void*>(view.data()), view.count(), view.type()}, {cuda, device},
      std::move(keep_alive), shape, flag_read_only);
}

namespace detail {

namespace {

wanted_view on_device(const tensor& source, int device) {
  return {misplaced(source.device, device),
          "readable_bytes_on_device() or writable_bytes_on_device()"};
}

}  // namespace

device_view import_tensor_on(const tensor& source, int device, device_stream on) {
  const auto found = import_elements(source, on_device(source, device));
  return {found.data, found.count, found.type, on};
}

device_view import_bytes_on(const tensor& source, packing elements, int device,
                            device_stream on) {
  const auto found = import_all_bytes(source, elements, on_device(source, device));
  return {found.data, found.count, found.type, on};
}

}  // namespace detail

}  // namespace manyworlds::inline v0::dlpack
