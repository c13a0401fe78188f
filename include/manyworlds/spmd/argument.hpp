// Argument: which types are values of remote functions, and how they travel.
#pragma once

#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "manyworlds/spmd/value_reader.hpp"
#include "manyworlds/spmd/value_writer.hpp"

namespace manyworlds::inline v0 {

/// Identifies a value type to programs that do not share a compiler: a number made of the
/// type's name. Types that contain others combine theirs.
class value_code {
 public:
  /// Makes the code of a type that is no other's part.
  consteval explicit value_code(std::string_view name) noexcept : number_(offset) {
    for (const char each : name) mix(static_cast<unsigned char>(each));
  }
  /// Returns the code of something that contains this.
  [[nodiscard]] constexpr value_code with(value_code inner) const noexcept {
    return with(inner.number_);
  }
  [[nodiscard]] constexpr value_code with(std::uint64_t number) const noexcept {
    value_code outer = *this;
    for (int byte = 0; byte < 8; ++byte) outer.mix((number >> (8 * byte)) & 0xff);
    return outer;
  }
  [[nodiscard]] constexpr std::uint64_t number() const noexcept { return number_; }
  friend constexpr bool operator==(value_code, value_code) noexcept = default;

 private:
  // FNV-1a of 64 bits (draft-eastlake-fnv).
  static constexpr std::uint64_t offset = 0xcbf29ce484222325;
  static constexpr std::uint64_t prime = 0x100000001b3;
  constexpr void mix(std::uint64_t byte) noexcept { number_ = (number_ ^ byte) * prime; }

  std::uint64_t number_;
};

/// Says how values of `T` travel. It is there for bool, integers, floating-point numbers,
/// enumerations, texts, bytes, `std::optional`, `std::array`, `std::vector`, `std::pair`,
/// `std::tuple`, `dtype`, `shape`, `memory_place`, `tensor`, spans of elements, and what
/// `is_plain_record` names.
///
/// Specialise it for types of your own, such as `url`, with three members; of a type with
/// several parts, `write` begins a list:
/// `static constexpr mw::value_code code{"url"};`
/// `static void write(mw::value_writer& out, const url& u) { out.text(u.str()); }`
/// `static url read(mw::value_reader& in) { return url(in.text()); }`
template <class T>
struct argument;

/// Says that a struct travels as its bytes: both programs must agree on its layout.
/// `template <> inline constexpr bool mw::is_plain_record<sampling> = true;`
template <class T>
inline constexpr bool is_plain_record = false;

/// Holds for what may be a value of a remote function.
template <class T>
concept remote_value = requires(value_writer& out, value_reader& in, const T& value) {
  argument<T>::write(out, value);
  { argument<T>::read(in) } -> std::convertible_to<T>;
  { argument<T>::code } -> std::convertible_to<value_code>;
};

// ---------------------------------------------------------------------------------------

namespace detail {

[[noreturn]] void refuse_range(std::string_view wanted);
[[noreturn]] void refuse_count(std::size_t wanted, std::size_t got);
[[noreturn]] void refuse_elements(dtype wanted, dtype got);
[[noreturn]] void refuse_alignment(dtype type);

template <class T>
concept whole_number =
    std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, wchar_t> &&
    !std::same_as<T, char8_t> && !std::same_as<T, char16_t> && !std::same_as<T, char32_t>;

/// Elements that travel as a block: not bool, and not the bytes of a text.
template <class T>
concept block_element = element<T> && !std::same_as<T, std::byte>;

/// Returns a code by size and sign, so that `long` and `long long` agree.
template <whole_number T>
consteval value_code code_of_integer() {
  if (std::is_signed_v<T> || std::same_as<T, char>) {
    constexpr std::array names{"i8", "i16", "", "i32", "", "", "", "i64"};
    return value_code(names[sizeof(T) - 1]);
  }
  constexpr std::array names{"u8", "u16", "", "u32", "", "", "", "u64"};
  return value_code(names[sizeof(T) - 1]);
}

/// Copies elements out of a message, where they need not be aligned.
template <block_element T>
void read_elements(value_reader& in, std::vector<T>& into) {
  const const_buffer_view found = in.elements();
  if (found.type() != dtype_of_v<T>) refuse_elements(dtype_of_v<T>, found.type());
  into.resize(found.count());
  if (!found.empty()) std::memcpy(into.data(), found.data(), found.size_bytes());
}

}  // namespace detail

template <>
struct argument<bool> {
  static constexpr value_code code{"bool"};
  static void write(value_writer& out, bool value) { out.boolean(value); }
  static bool read(value_reader& in) { return in.boolean(); }
};

template <detail::whole_number T>
struct argument<T> {
  static constexpr value_code code = detail::code_of_integer<T>();
  static void write(value_writer& out, T value) {
    if constexpr (std::is_unsigned_v<T>) {
      out.unsigned_integer(value);
    } else {
      out.integer(value);
    }
  }
  static T read(value_reader& in) {
    if constexpr (std::is_unsigned_v<T>) {
      const std::uint64_t value = in.unsigned_integer();
      if (value > std::numeric_limits<T>::max())
        detail::refuse_range("an unsigned integer");
      return static_cast<T>(value);
    } else {
      const std::int64_t value = in.integer();
      if (value < std::numeric_limits<T>::min() || value > std::numeric_limits<T>::max())
        detail::refuse_range("an integer");
      return static_cast<T>(value);
    }
  }
};

template <>
struct argument<double> {
  static constexpr value_code code{"f64"};
  static void write(value_writer& out, double value) { out.real(value); }
  static double read(value_reader& in) { return in.real(); }
};

template <>
struct argument<float> {
  static constexpr value_code code{"f32"};
  static void write(value_writer& out, float value) { out.real(value); }
  static float read(value_reader& in) {
    const double value = in.real();
    const bool fits = std::abs(value) <= std::numeric_limits<float>::max();
    if (!fits && std::isfinite(value)) detail::refuse_range("a float");
    return static_cast<float>(value);
  }
};

template <class T>
requires std::is_enum_v<T>
struct argument<T> {
  using number = std::underlying_type_t<T>;
  static constexpr value_code code = value_code("enum").with(argument<number>::code);
  static void write(value_writer& out, T value) {
    argument<number>::write(out, static_cast<number>(value));
  }
  static T read(value_reader& in) { return static_cast<T>(argument<number>::read(in)); }
};

template <>
struct argument<dtype> {
  static constexpr value_code code{"dtype"};
  static void write(value_writer& out, dtype value) { out.element_type(value); }
  static dtype read(value_reader& in) { return in.element_type(); }
};

template <>
struct argument<shape> {
  static constexpr value_code code{"shape"};
  static void write(value_writer& out, const shape& value) { out.shape(value); }
  static shape read(value_reader& in) { return in.shape(); }
};

template <>
struct argument<memory_place> {
  static constexpr value_code code{"place"};
  static void write(value_writer& out, memory_place value) { out.place(value); }
  static memory_place read(value_reader& in) { return in.place(); }
};

template <>
struct argument<std::string> {
  static constexpr value_code code{"text"};
  static void write(value_writer& out, std::string_view value) { out.text(value); }
  static std::string read(value_reader& in) { return std::string(in.text()); }
};

/// A text that the function reads while the call lasts.
template <>
struct argument<std::string_view> {
  static constexpr value_code code = argument<std::string>::code;
  static void write(value_writer& out, std::string_view value) { out.text(value); }
  static std::string_view read(value_reader& in) { return in.text(); }
};

template <>
struct argument<std::vector<std::byte>> {
  static constexpr value_code code{"bytes"};
  static void write(value_writer& out, std::span<const std::byte> value) {
    out.bytes(value);
  }
  static std::vector<std::byte> read(value_reader& in) {
    const std::span<const std::byte> found = in.bytes();
    return {found.begin(), found.end()};
  }
};

/// Bytes that the function reads while the call lasts.
template <>
struct argument<std::span<const std::byte>> {
  static constexpr value_code code = argument<std::vector<std::byte>>::code;
  static void write(value_writer& out, std::span<const std::byte> value) {
    out.bytes(value);
  }
  static std::span<const std::byte> read(value_reader& in) { return in.bytes(); }
};

template <remote_value T>
struct argument<std::optional<T>> {
  static constexpr value_code code = value_code("optional").with(argument<T>::code);
  static void write(value_writer& out, const std::optional<T>& value) {
    if (!value) return out.none();
    argument<T>::write(out, *value);
  }
  static std::optional<T> read(value_reader& in) {
    if (in.next() != value_kind::none) return argument<T>::read(in);
    in.none();
    return std::nullopt;
  }
};

template <remote_value T>
struct argument<std::vector<T>> {
  static constexpr value_code code = value_code("vector").with(argument<T>::code);
  static void write(value_writer& out, const std::vector<T>& values) {
    out.list(values.size());
    for (const T& each : values) argument<T>::write(out, each);
  }
  static std::vector<T> read(value_reader& in) {
    const std::size_t count = in.list();
    std::vector<T> values;
    values.reserve(count);
    for (std::size_t i = 0; i < count; ++i) values.push_back(argument<T>::read(in));
    return values;
  }
};

template <remote_value T>
requires detail::block_element<T>
struct argument<std::vector<T>> {
  static constexpr value_code code = value_code("vector").with(argument<T>::code);
  static void write(value_writer& out, const std::vector<T>& values) {
    out.elements(values);
  }
  static std::vector<T> read(value_reader& in) {
    std::vector<T> values;
    detail::read_elements(in, values);
    return values;
  }
};

/// Elements that the function reads while the call lasts.
template <detail::block_element T>
struct argument<std::span<const T>> {
  static constexpr value_code code = argument<std::vector<T>>::code;
  static void write(value_writer& out, std::span<const T> values) {
    out.elements(values);
  }
  static std::span<const T> read(value_reader& in) {
    const const_buffer_view found = in.elements();
    if (found.type() != dtype_of_v<T>)
      detail::refuse_elements(dtype_of_v<T>, found.type());
    if (reinterpret_cast<std::uintptr_t>(found.data()) % alignof(T) != 0)
      detail::refuse_alignment(found.type());
    return {static_cast<const T*>(found.data()), found.count()};
  }
};

template <remote_value T, std::size_t Size>
struct argument<std::array<T, Size>> {
  static constexpr value_code code = value_code("array").with(argument<T>::code);
  static void write(value_writer& out, const std::array<T, Size>& values) {
    out.list(Size);
    for (const T& each : values) argument<T>::write(out, each);
  }
  static std::array<T, Size> read(value_reader& in) {
    const std::size_t count = in.list();
    if (count != Size) detail::refuse_count(Size, count);
    // Braces order the reads.
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return std::array<T, Size>{(static_cast<void>(I), argument<T>::read(in))...};
    }
    (std::make_index_sequence<Size>());
  }
};

template <remote_value... Parts>
struct argument<std::tuple<Parts...>> {
  static constexpr value_code code = [] {
    value_code all("tuple");
    ((all = all.with(argument<Parts>::code)), ...);
    return all;
  }();
  static void write(value_writer& out, const std::tuple<Parts...>& parts) {
    out.list(sizeof...(Parts));
    std::apply([&](const Parts&... each) { (argument<Parts>::write(out, each), ...); },
               parts);
  }
  static std::tuple<Parts...> read(value_reader& in) {
    const std::size_t count = in.list();
    if (count != sizeof...(Parts)) detail::refuse_count(sizeof...(Parts), count);
    return std::tuple<Parts...>{argument<Parts>::read(in)...};
  }
};

template <remote_value First, remote_value Second>
struct argument<std::pair<First, Second>> {
  using parts = argument<std::tuple<First, Second>>;
  static constexpr value_code code = parts::code;
  static void write(value_writer& out, const std::pair<First, Second>& both) {
    out.list(2);
    argument<First>::write(out, both.first);
    argument<Second>::write(out, both.second);
  }
  static std::pair<First, Second> read(value_reader& in) {
    auto both = parts::read(in);
    return {std::move(std::get<0>(both)), std::move(std::get<1>(both))};
  }
};

template <>
struct argument<tensor> {
  static constexpr value_code code{"tensor"};
  static void write(value_writer& out, const tensor& value) { out.tensor(value); }
  static tensor read(value_reader& in) { return in.tensor(); }
};

template <class T>
requires is_plain_record<T>
struct argument<T> {
  static_assert(std::is_trivially_copyable_v<T> && std::is_default_constructible_v<T>,
                "a plain record is copied byte by byte");
  static constexpr value_code code = value_code("record").with(std::uint64_t{sizeof(T)});
  static void write(value_writer& out, const T& value) {
    out.record(std::as_bytes(std::span(&value, 1)));
  }
  static T read(value_reader& in) {
    T value;
    std::memcpy(&value, in.record(sizeof(T)).data(), sizeof(T));
    return value;
  }
};

}  // namespace manyworlds::inline v0
