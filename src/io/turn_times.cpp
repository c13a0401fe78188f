#include "manyworlds/observe/turn_times.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace manyworlds::inline v0 {

duration time_histogram::begin_of(std::size_t bucket) noexcept {
  if (bucket == 0) return duration::zero();
  return std::chrono::microseconds(std::uint64_t{1} << (bucket - 1));
}

std::uint64_t time_histogram::count() const noexcept {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

duration time_histogram::quantile(double part) const noexcept {
  const double wanted = std::ceil(part * static_cast<double>(count()));
  double seen = 0;
  for (std::size_t b = 0; b + 1 < buckets; ++b) {
    seen += static_cast<double>(counts[b]);
    if (seen >= wanted) return std::min(begin_of(b + 1), longest);
  }
  return longest;
}

}  // namespace manyworlds::inline v0
