// Byte size: amounts of memory for people, "64 GiB".
#pragma once

#include <cstdint>
#include <string>

namespace manyworlds::inline v0::detail {

/// Returns "64 GiB", or "1.5 GiB" for what is no whole number: it does not read back.
[[nodiscard]] std::string byte_size_text(std::uint64_t bytes);

}  // namespace manyworlds::inline v0::detail
