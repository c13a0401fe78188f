#include "mpmd/byte_size.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <system_error>

namespace manyworlds::inline v0::detail {

namespace {

constexpr std::array<std::string_view, 5> units{"B", "KiB", "MiB", "GiB", "TiB"};

}  // namespace

std::optional<std::uint64_t> read_byte_size(std::string_view text) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec != std::errc()) return std::nullopt;
  std::string_view unit(parsed.ptr, static_cast<std::size_t>(end - parsed.ptr));
  if (unit.empty()) return number;
  if (unit.front() == ' ') unit.remove_prefix(1);
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (unit != units[i]) continue;
    const std::uint64_t factor = std::uint64_t{1} << (10 * i);
    if (number > UINT64_MAX / factor) return std::nullopt;
    return number * factor;
  }
  return std::nullopt;
}

std::string byte_size_text(std::uint64_t bytes) {
  std::size_t unit = 0;
  while (unit + 1 < units.size() && bytes >> (10 * (unit + 1)) != 0) ++unit;
  const std::uint64_t factor = std::uint64_t{1} << (10 * unit);
  if (bytes % factor == 0) return fmt::format("{} {}", bytes / factor, units[unit]);
  const double parts = static_cast<double>(bytes) / static_cast<double>(factor);
  return fmt::format("{:.1f} {}", parts, units[unit]);
}

}  // namespace manyworlds::inline v0::detail
