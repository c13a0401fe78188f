// JSON writer: writes objects and arrays in call order, with commas and escapes.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

/// Writes a JSON text. Precondition: the caller closes each brace that it opens, in
/// order. Bytes that are not UTF-8 become U+FFFD: readers refuse a text that holds any.
class json_writer {
 public:
  json_writer& object() { return open('{'); }
  json_writer& end_object() { return close('}'); }
  json_writer& array() { return open('['); }
  json_writer& end_array() { return close(']'); }

  json_writer& key(std::string_view name) {
    MW_ASSERT(!text_.empty() && text_.back() != ':',
              "a key stands in an object, behind a value");
    separate();
    quote(name);
    text_ += ':';
    fresh_ = true;
    return *this;
  }
  json_writer& value(std::string_view text) {
    separate();
    quote(text);
    return *this;
  }
  json_writer& value(const char* text) { return value(std::string_view(text)); }
  json_writer& value(bool flag) { return raw(flag ? "true" : "false"); }
  json_writer& value(std::integral auto number) { return raw(fmt::format("{}", number)); }
  /// Writes six decimals. The caller names the unit in the key.
  json_writer& value(double number) { return raw(fmt::format("{:.6f}", number)); }
  json_writer& null() { return raw("null"); }

  template <class T>
  json_writer& field(std::string_view name, const T& v) {
    key(name);
    return value(v);
  }

  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  json_writer& open(char brace) {
    separate();
    text_ += brace;
    fresh_ = true;
    return *this;
  }
  json_writer& close(char brace) {
    MW_ASSERT(!text_.empty() && text_.back() != ':', "a brace is closed behind a value");
    text_ += brace;
    fresh_ = false;
    return *this;
  }
  json_writer& raw(std::string_view text) {
    separate();
    text_ += text;
    return *this;
  }
  void separate() {
    if (!fresh_) text_ += ',';
    fresh_ = false;
  }
  void quote(std::string_view text);

  std::string text_;
  bool fresh_ = true;
};

/// Returns the bytes of the UTF-8 character that `text` begins with, 0 if it begins
/// with none (overlong forms, surrogates and what lies beyond U+10FFFF are none).
[[nodiscard]] std::size_t utf8_length(std::string_view text) noexcept;

}  // namespace manyworlds::inline v0::detail
