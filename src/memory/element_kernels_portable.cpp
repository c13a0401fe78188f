#include <cstring>
#include <type_traits>
#include <utility>

#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/memory/small_float.hpp"
#include "memory/element_kernels.hpp"

namespace manyworlds::inline v0::detail {

namespace {
namespace portable_vectors {

// Every 64-bit processor has these vectors, or the compiler emulates them.
constexpr std::size_t vector_bytes = 16;

#include "memory/vectors.inc"
// clang-format off: each of these needs the one before.
#include "memory/element_kinds.inc"
using float16_elements = small_float_elements<detail::f16_format>;
#include "memory/element_kernels.inc"
// clang-format on

constexpr element_kernels kernels{"portable", reduce, divide};

}  // namespace portable_vectors
}  // namespace

const element_kernels& portable_kernels() noexcept { return portable_vectors::kernels; }

}  // namespace manyworlds::inline v0::detail
