// Reducing: combines the elements of two members, for collectives on the host.
#pragma once

#include <cstddef>
#include <cstdint>

#include "manyworlds/memory/dtype.hpp"
#include "manyworlds/memory/reduction.hpp"

namespace manyworlds::inline v0::detail {

/// Sets into[i] = low[i] (op) high[i]. `into` may be exactly `low` or exactly `high`, no
/// other overlap. Pointers need no alignment. avg adds, as sum: `divide_elements` ends
/// it.
///
/// Every bit of a result follows from its two elements alone. It depends neither on the
/// processor nor on the count or the alignment, and `low` and `high` may change places:
/// - Integers wrap around.
/// - float32 and float64 round once, to nearest even. Narrower floats are summed and
///   multiplied as float32 and then rounded as `small_float` rounds: float16 and bfloat16
///   become infinite, float8 stops at its largest finite value.
/// - min and max never change a value: -0 is less than +0, and NaN wins over any number,
///   as in IEEE 754-2019's minimum and maximum. (NCCL's give the number.)
/// - Every NaN becomes the positive quiet NaN without payload. (float8_e4m3 has one
/// only.)
///
/// Precondition: the thread's floating-point environment is the default one (nearest
/// even, subnormals not flushed).
void reduce_elements(dtype type, reduction op, const std::byte* low,
                     const std::byte* high, std::byte* into, std::size_t count) noexcept;

/// Does the last step of avg: divides by the number of members (positive), in the
/// elements' own arithmetic. Integers are truncated towards zero. Floats are divided by
/// the divisor as float32 (float64 by it as float64), and rounded as above.
void divide_elements(dtype type, std::byte* data, std::size_t count,
                     std::int64_t divisor) noexcept;

}  // namespace manyworlds::inline v0::detail
