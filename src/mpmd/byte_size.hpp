// Byte size: amounts of memory as people write them, "64GiB".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace manyworlds::inline v0::detail {

/// Reads a whole number of bytes, or one with KiB, MiB, GiB or TiB behind it. Returns
/// nothing for anything else, and for what 64 bits do not hold.
[[nodiscard]] std::optional<std::uint64_t> read_byte_size(std::string_view text);

/// Returns "64 GiB", or "1.5 GiB" for what is no whole number: for people.
[[nodiscard]] std::string byte_size_text(std::uint64_t bytes);

}  // namespace manyworlds::inline v0::detail
