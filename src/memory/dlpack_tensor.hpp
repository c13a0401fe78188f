// DLPack tensor: the parts of import and export that host and device memory share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "manyworlds/memory/dlpack.hpp"

namespace manyworlds::inline v0::dlpack::detail {

struct plain_elements {
  void* data;
  std::size_t count;
  dtype type;
};

/// Returns whether it is memory that CUDA kernels reach: kDLCUDA or kDLCUDAManaged.
[[nodiscard]] constexpr bool is_on_cuda(const device& where) noexcept {
  return where.device_type == 2 || where.device_type == 13;
}

/// Says where a view was asked for, and what the error says of a tensor that has none.
struct wanted_view {
  /// Says why its memory is the wrong one; empty if it is not.
  std::string misplaced;
  /// The functions that take its bytes.
  const char* byte_functions;
};

/// Returns a tensor's elements. Throws std::invalid_argument for what cannot be a view.
plain_elements import_elements(const tensor& source, const wanted_view& wanted);
/// Returns the same as elements of uint8.
plain_elements import_all_bytes(const tensor& source, packing elements,
                                const wanted_view& wanted);

owned_tensor export_elements(const plain_elements& view, device where,
                             std::shared_ptr<const void> keep_alive,
                             std::span<const std::int64_t> shape, std::uint64_t flags);

}  // namespace manyworlds::inline v0::dlpack::detail
