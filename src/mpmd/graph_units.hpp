// Graph units: times and sizes as they stand in files, "1h30m", "2GiB".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "manyworlds/time.hpp"

namespace manyworlds::inline v0::detail {

/// Reads whole numbers of d, h, m, s, ms, us and ns, the larger units first, as "1h30m".
/// Returns nothing if it is no such text, or more than a duration can hold.
[[nodiscard]] std::optional<duration> parse_duration(std::string_view text) noexcept;
/// Returns a text that reads back equal, in the largest unit that divides it.
/// Precondition: it is not negative.
[[nodiscard]] std::string exact_duration_text(duration span);

/// Reads a whole number of B, kB, KB, MB, GB, TB, KiB, MiB, GiB or TiB; without a unit,
/// of bytes. Returns nothing if it is no such text, or more than 64 bits hold.
[[nodiscard]] std::optional<std::uint64_t> parse_size(std::string_view text) noexcept;
/// Returns a text that reads back equal, in the largest binary unit that divides it.
[[nodiscard]] std::string exact_size_text(std::uint64_t bytes);
/// Returns a size for people, as "64 GiB", or "1.5 GiB" for what is no whole number: it
/// does not read back.
[[nodiscard]] std::string byte_size_text(std::uint64_t bytes);

}  // namespace manyworlds::inline v0::detail
