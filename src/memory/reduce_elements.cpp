#include "memory/reduce_elements.hpp"

#include "manyworlds/detail/assertion.hpp"
#include "memory/element_kernels.hpp"

namespace manyworlds::inline v0::detail {

namespace {

const element_kernels& fastest_kernels() noexcept {
  if (const auto* kernels = avx2_kernels()) return *kernels;
  return portable_kernels();
}

}  // namespace

void reduce_elements(dtype type, reduction op, const std::byte* low,
                     const std::byte* high, std::byte* into, std::size_t count) noexcept {
  MW_ASSERT(count == 0 || (low && high && into), "elements have memory");
  fastest_kernels().reduce(type, op, low, high, into, count);
}

void divide_elements(dtype type, std::byte* data, std::size_t count,
                     std::int64_t divisor) noexcept {
  MW_ASSERT(count == 0 || data, "elements have memory");
  MW_ASSERT(divisor > 0, "a world has members to divide by");
  fastest_kernels().divide(type, data, count, divisor);
}

}  // namespace manyworlds::inline v0::detail
