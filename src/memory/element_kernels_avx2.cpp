#include "memory/element_kernels.hpp"

#include "manyworlds/detail/assertion.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#include <cstring>
#include <type_traits>
#include <utility>

#include "manyworlds/memory/small_float.hpp"

// This is compiled for AVX2 and F16C, no matter what the rest is compiled for.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,f16c")
#endif

namespace manyworlds::inline v0::detail {

namespace {
namespace avx2_vectors {

constexpr std::size_t vector_bytes = 32;

#include "memory/vectors.inc"
// clang-format off: each of these needs the one before.
#include "memory/element_kinds.inc"

/// The elements that the processor converts itself. Half a vector of them is a vector of
/// floats.
struct float16_elements {
  using vector = __m128i;
  template <class Operation, class... Vectors>
  static __m128i apply(Operation op, Vectors... vectors) noexcept {
    using floats = float_elements<float32_format>;
    const __m256 result = floats::apply(op, _mm256_cvtph_ps(vectors)...);
    return _mm256_cvtps_ph(result, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
};

#include "memory/element_kernels.inc"
// clang-format on

constexpr element_kernels kernels{"AVX2", reduce, divide};

}  // namespace avx2_vectors
}  // namespace

}  // namespace manyworlds::inline v0::detail

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

namespace manyworlds::inline v0::detail {

const element_kernels* avx2_kernels() noexcept {
#if defined(__x86_64__)
  // clang 14's __builtin_cpu_supports does not know F16C. CPUID is slow in a virtual
  // machine, so it runs once.
  static const bool has_f16c = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  }();
  if (__builtin_cpu_supports("avx2") && has_f16c) return &avx2_vectors::kernels;
#endif
  return nullptr;
}

}  // namespace manyworlds::inline v0::detail
