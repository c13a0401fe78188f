// Plain text: what others have written, as it may be shown on a terminal.
#pragma once

#include <string>
#include <string_view>

namespace manyworlds::inline v0::detail {

/// Returns the text with its control characters, but newline and tab, written as \x1b: a
/// terminal would obey them. Other text stays as it is.
[[nodiscard]] std::string plain_text(std::string_view text);

}  // namespace manyworlds::inline v0::detail
