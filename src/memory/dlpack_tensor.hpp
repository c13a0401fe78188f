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

/// Throws std::invalid_argument for what cannot be a view, and for `misplaced` unless it
/// is empty.
plain_elements import_elements(const tensor& source, const std::string& misplaced);

owned_tensor export_elements(const plain_elements& view, device where,
                             std::shared_ptr<const void> keep_alive,
                             std::span<const std::int64_t> shape, std::uint64_t flags);

}  // namespace manyworlds::inline v0::dlpack::detail
