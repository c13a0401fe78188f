#include "mpmd/byte_size.hpp"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <string_view>

namespace manyworlds::inline v0::detail {

namespace {

constexpr std::array<std::string_view, 5> units{"B", "KiB", "MiB", "GiB", "TiB"};

}  // namespace

std::string byte_size_text(std::uint64_t bytes) {
  std::size_t unit = 0;
  while (unit + 1 < units.size() && bytes >> (10 * (unit + 1)) != 0) ++unit;
  const std::uint64_t factor = std::uint64_t{1} << (10 * unit);
  if (bytes % factor == 0) return fmt::format("{} {}", bytes / factor, units[unit]);
  const double parts = static_cast<double>(bytes) / static_cast<double>(factor);
  return fmt::format("{:.1f} {}", parts, units[unit]);
}

}  // namespace manyworlds::inline v0::detail
