// Inline text: a short string that owns its bytes, is trivially destructible and cannot
// dangle.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0 {

/// Holds at most `Capacity` bytes of text by value. Options use it, so that designated
/// initialisers are safe in awaited expressions: g++ 12.2 frees other strings there
/// twice.
template <std::size_t Capacity>
class inline_text {
 public:
  static_assert(Capacity < 256);

  constexpr inline_text() noexcept = default;
  /// Copies the text. Errors: std::length_error naming the text if it is longer than
  /// `Capacity`.
  constexpr inline_text(std::string_view text) {
    if (text.size() > Capacity) {
      throw std::length_error("text of " + std::to_string(text.size()) +
                              " bytes exceeds " + std::to_string(Capacity) + ": \"" +
                              std::string(text) + "\"");
    }
    std::copy(text.begin(), text.end(), bytes_.begin());
    size_ = static_cast<std::uint8_t>(text.size());
  }
  constexpr inline_text(const char* text) : inline_text(std::string_view(text)) {}
  inline_text(const std::string& text) : inline_text(std::string_view(text)) {}

  /// Returns the front of a text that may be longer, for texts that only people read.
  [[nodiscard]] static constexpr inline_text clipped(std::string_view text) {
    return inline_text(text.substr(0, Capacity));
  }

  [[nodiscard]] constexpr std::string_view view() const noexcept {
    return {bytes_.data(), size_};
  }
  [[nodiscard]] std::string str() const { return std::string(view()); }
  [[nodiscard]] constexpr bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] constexpr std::size_t size() const noexcept { return size_; }
  /// Gives the text, as `view` does.
  constexpr operator std::string_view() const noexcept { return view(); }

  friend constexpr bool operator==(const inline_text& a, const inline_text& b) noexcept {
    return a.view() == b.view();
  }
  friend constexpr auto operator<=>(const inline_text& a, const inline_text& b) noexcept {
    return a.view() <=> b.view();
  }

 private:
  std::array<char, Capacity> bytes_{};
  std::uint8_t size_ = 0;
};

/// A world's name: 1 to 63 bytes.
using world_name = inline_text<63>;

/// Names a service, in 1 to 46 bytes: this leaves room behind it to tell the names of
/// its worlds apart.
using service_name = inline_text<46>;

/// A job's shared secret: at most 127 bytes; none if it is empty.
using secret_text = inline_text<127>;

}  // namespace manyworlds::inline v0
