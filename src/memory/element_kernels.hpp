// Element kernels: reduce_elements and divide_elements, once for each instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "manyworlds/memory/dtype.hpp"
#include "manyworlds/memory/reduction.hpp"

namespace manyworlds::inline v0::detail {

/// The kernels of one instruction set. All sets give the same bits: wider vectors are
/// only faster.
struct element_kernels {
  const char* name;
  void (*reduce)(dtype type, reduction op, const std::byte* low, const std::byte* high,
                 std::byte* into, std::size_t count) noexcept;
  void (*divide)(dtype type, std::byte* data, std::size_t count,
                 std::int64_t divisor) noexcept;
};

[[nodiscard]] const element_kernels& portable_kernels() noexcept;
/// Returns null where the processor, or its kernel, does not have these instructions.
[[nodiscard]] const element_kernels* avx2_kernels() noexcept;

}  // namespace manyworlds::inline v0::detail
