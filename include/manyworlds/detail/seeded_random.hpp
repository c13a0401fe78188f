// Seeded random: the same sequence from the same seed with every compiler and library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/time.hpp"

namespace manyworlds::inline v0::detail {

/// A small deterministic generator (splitmix64), which is not for secrets. It does not
/// use the standard distributions, because their results differ between libraries and a
/// seed must mean one run everywhere.
class seeded_random {
 public:
  explicit seeded_random(std::uint64_t seed) noexcept : state_(seed) {}

  std::uint64_t next() noexcept {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  /// Returns 0 to n - 1. Precondition: n is at least 1.
  std::uint64_t below(std::uint64_t n) noexcept {
    MW_ASSERT(n > 0, "something can be chosen");
    return next() % n;
  }
  /// Returns 1 to n. Precondition: n is at least 1.
  std::size_t up_to(std::size_t n) noexcept {
    return 1 + static_cast<std::size_t>(below(n));
  }
  bool one_in(std::uint64_t n) noexcept { return below(n) == 0; }
  /// Returns zero to `longest`, both included.
  duration at_most(duration longest) noexcept {
    if (longest <= duration::zero()) return duration::zero();
    return duration(below(static_cast<std::uint64_t>(longest.count()) + 1));
  }

  void fill(std::span<std::byte> bytes) noexcept {
    for (std::byte& b : bytes) b = static_cast<std::byte>(next() & 0xff);
  }
  /// Returns an independent sequence, so that one user's draws do not change what another
  /// one sees.
  seeded_random fork() noexcept { return seeded_random(next()); }

 private:
  std::uint64_t state_;
};

}  // namespace manyworlds::inline v0::detail
