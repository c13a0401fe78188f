// Byte text: any bytes as a text that JSON can hold.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0::detail {

[[nodiscard]] inline std::string hex_of(std::string_view bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += digits[byte >> 4U];
    text += digits[byte & 15U];
  }
  return text;
}

/// Errors: std::invalid_argument unless each byte has two digits.
[[nodiscard]] inline std::string bytes_of_hex(std::string_view text) {
  const auto digit = [](char c) -> unsigned {
    if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
    if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a') + 10U;
    throw std::invalid_argument("bytes are told by the digits 0 to 9 and a to f");
  };
  if (text.size() % 2 != 0) throw std::invalid_argument("half a byte");
  std::string bytes;
  bytes.reserve(text.size() / 2);
  for (std::size_t i = 0; i < text.size(); i += 2)
    bytes += static_cast<char>(digit(text[i]) << 4U | digit(text[i + 1]));
  return bytes;
}

}  // namespace manyworlds::inline v0::detail
