// Assertion: a fact that the library itself must keep, stated where it would be missed
// first.
#pragma once

#include "manyworlds/detail/config.hpp"

// In debug builds, unless it is said otherwise. Neither way changes a layout.
#if !defined(MW_ASSERTIONS)
#if defined(NDEBUG) || defined(__OPTIMIZE__)
#define MW_ASSERTIONS 0
#else
#define MW_ASSERTIONS 1
#endif
#endif

namespace manyworlds::inline v0::detail {

/// Says which fact does not hold, and where, and aborts.
[[noreturn]] void assertion_failed(const char* condition, const char* fact,
                                   const char* file, int line) noexcept;

}  // namespace manyworlds::inline v0::detail

/// `MW_ASSERT(window >= bytes, "a send never takes more than its window");`
///
/// The condition has no side effects: it is not evaluated where assertions are off. A
/// peer's, a user's or the kernel's mistake is an error and not an assertion.
#if MW_ASSERTIONS
#define MW_ASSERT(condition, fact) \
  ((condition)                     \
       ? static_cast<void>(0)      \
       : ::manyworlds::detail::assertion_failed(#condition, fact, __FILE__, __LINE__))
#else
#define MW_ASSERT(condition, fact) \
  static_cast<void>(sizeof((condition) ? true : false, fact))
#endif
