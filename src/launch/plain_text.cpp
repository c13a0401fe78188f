#include "launch/plain_text.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <iterator>

namespace manyworlds::inline v0::detail {

std::string plain_text(std::string_view text) {
  const auto at = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const unsigned c = at(i);
    const bool is_control = (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
    // In UTF-8, U+0080 to U+009F are controls too.
    const bool is_wide = c == 0xc2 && at(i + 1) >= 0x80 && at(i + 1) < 0xa0;
    if (is_wide) ++i;
    if (is_control || is_wide) {
      fmt::format_to(std::back_inserter(plain), "\\x{:02x}", at(i));
    } else {
      plain += text[i];
    }
  }
  return plain;
}

}  // namespace manyworlds::inline v0::detail
