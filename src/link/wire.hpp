// Wire: little-endian fields of control messages, written and read with every length
// checked.
#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0::detail {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

using bytes = std::vector<std::byte>;

/// Thrown by a reader for a message that is shorter than its fields say, or out of
/// range (law 11).
class wire_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Appends fields to a message.
class wire_writer {
 public:
  template <class T>
  requires(std::integral<T> || std::is_enum_v<T>) wire_writer& put(T value) {
    return append(&value, sizeof value);
  }
  wire_writer& put(std::string_view text) {
    put(static_cast<std::uint16_t>(std::min<std::size_t>(text.size(), 0xffff)));
    return put_raw(std::as_bytes(std::span(text.substr(0, 0xffff))));
  }
  wire_writer& put_raw(std::span<const std::byte> raw) {
    return append(raw.data(), raw.size());
  }
  [[nodiscard]] bytes take() noexcept { return std::move(out_); }
  [[nodiscard]] std::span<const std::byte> view() const noexcept { return out_; }

 private:
  wire_writer& append(const void* from, std::size_t size) {
    // Most messages are shorter, so they are allocated once.
    if (out_.capacity() == 0) out_.reserve(256);
    const auto* raw = static_cast<const std::byte*>(from);
    out_.insert(out_.end(), raw, raw + size);
    return *this;
  }

  bytes out_;
};

/// Reads fields in order; throws wire_error at the first that does not fit.
class wire_reader {
 public:
  explicit wire_reader(std::span<const std::byte> message) noexcept : rest_(message) {}

  template <std::integral T>
  [[nodiscard]] T get() {
    T value{};
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  /// Reads an enumerator. Errors: wire_error if it is beyond `last`.
  template <class E>
  requires std::is_enum_v<E>
  [[nodiscard]] E get_enum(E last) {
    const auto value = get<std::underlying_type_t<E>>();
    if (value > static_cast<std::underlying_type_t<E>>(last)) {
      throw wire_error("a field holds " + std::to_string(value) +
                       ", beyond its last value");
    }
    return static_cast<E>(value);
  }
  [[nodiscard]] std::string_view get_text(std::size_t longest) {
    const std::size_t size = get<std::uint16_t>();
    if (size > longest) throw wire_error("a text of " + std::to_string(size) + " bytes");
    const auto raw = take(size);
    return {reinterpret_cast<const char*>(raw.data()), raw.size()};
  }
  std::span<const std::byte> take(std::size_t size) {
    if (rest_.size() < size) throw wire_error("the message ends within a field");
    const auto front = rest_.first(size);
    rest_ = rest_.subspan(size);
    return front;
  }
  [[nodiscard]] std::span<const std::byte> rest() const noexcept { return rest_; }
  void expect_end() const {
    if (!rest_.empty()) {
      throw wire_error(std::to_string(rest_.size()) +
                       " bytes stand behind the last field");
    }
  }

 private:
  std::span<const std::byte> rest_;
};

}  // namespace manyworlds::inline v0::detail
