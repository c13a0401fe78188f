// Stored number: how `add` reads and changes a value.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0::detail {

/// Returns the number that a value holds in decimal; nothing if it holds none.
[[nodiscard]] inline std::optional<std::int64_t> stored_number(
    std::string_view text) noexcept {
  std::int64_t number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// Returns the sum with a value, where a key that is not set counts as 0; nothing if the
/// value holds no number or the sum exceeds 64 bits.
[[nodiscard]] inline std::optional<std::int64_t> stored_sum(
    const std::optional<std::string>& value, std::int64_t delta) noexcept {
  std::optional<std::int64_t> sum = value ? stored_number(*value) : std::int64_t{0};
  if (sum && __builtin_add_overflow(*sum, delta, &*sum)) sum.reset();
  return sum;
}

}  // namespace manyworlds::inline v0::detail
