// JSON writer: objects and arrays in the order they are written, commas and escapes
// included.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

namespace manyworlds::inline v0 {

/// Opened braces are closed by the caller, in order; the rest is always valid. Bytes that
/// are not UTF-8 become U+FFFD: readers refuse a text that holds any.
class json_writer {
 public:
  json_writer& object() { return open('{'); }
  json_writer& end_object() { return close('}'); }
  json_writer& array() { return open('['); }
  json_writer& end_array() { return close(']'); }

  json_writer& key(std::string_view name) {
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
  /// With microseconds' resolution, in the unit the caller says in the key.
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

/// The bytes of the UTF-8 character that `text` begins with, 0 if it begins with none
/// (overlong forms, surrogates and what lies beyond U+10FFFF are none).
[[nodiscard]] std::size_t utf8_length(std::string_view text) noexcept;

}  // namespace manyworlds::inline v0
