// DLPack tensor: what import and export do alike for host and device memory.
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

/// Where a view was asked for, and what is said of a tensor that has none.
struct wanted_view {
  /// Why its memory is the wrong one; empty if it is not.
  std::string misplaced;
  /// The functions that take its bytes.
  const char* byte_functions;
};

/// Throws std::invalid_argument for what cannot be a view.
plain_elements import_elements(const tensor& source, const wanted_view& wanted);
/// The same, as elements of uint8.
plain_elements import_all_bytes(const tensor& source, packing elements,
                                const wanted_view& wanted);

owned_tensor export_elements(const plain_elements& view, device where,
                             std::shared_ptr<const void> keep_alive,
                             std::span<const std::int64_t> shape, std::uint64_t flags);

}  // namespace manyworlds::inline v0::dlpack::detail
