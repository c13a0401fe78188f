// zpp_bits: types that the zpp::bits library serializes, as values of remote functions.
#pragma once

#include <zpp_bits.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "manyworlds/spmd/argument.hpp"

namespace manyworlds::inline v0 {

/// Names a type that travels as zpp::bits serializes it. The name stands for the type
/// and its members in what controller and workers compare: a type that has changed gets
/// another.
///
/// `template <> inline constexpr std::string_view mw::zpp_bits_name<ask> = "ask/1";`
///
/// `inline constexpr mw::remote_function<int(ask)> begin{"begin"};`
///
/// Such a value has 16 MiB at most, in bytes and in what a container of it claims to
/// hold, and nests 64 deep. Errors: value_error for bytes that are none of this type's,
/// and for more of them.
template <class T>
inline constexpr std::string_view zpp_bits_name = {};

template <class T>
requires(!zpp_bits_name<T>.empty()) struct argument<T> {
  static constexpr value_code code{zpp_bits_name<T>};

  static void write(value_writer& out, const T& value) {
    std::vector<std::byte> bytes;
    zpp::bits::out writing(bytes, limit{}, zpp::bits::exact_enlarger{});
    check(writing(value));
    // Many bytes are only referred to, and these are gone soon; a text is copied.
    out.text({reinterpret_cast<const char*>(bytes.data()), writing.position()});
  }
  [[nodiscard]] static T read(value_reader& in) {
    const std::span<const char> text = in.text();
    const std::span<const std::byte> bytes = std::as_bytes(text);
    zpp::bits::in reading(bytes, limit{}, zpp::bits::nesting_limit<64>{});
    T value{};
    check(reading(value));
    if (reading.position() != bytes.size()) refuse("there is more behind it");
    return value;
  }

 private:
  using limit = zpp::bits::alloc_limit<std::size_t{16} << 20>;

  [[noreturn]] static void refuse(std::string_view why) {
    throw value_error(std::string("no ")
                          .append(zpp_bits_name<T>)
                          .append(" as zpp::bits writes it: ")
                          .append(why));
  }
  static void check(zpp::bits::errc result) {
    if (zpp::bits::failure(result))
      refuse(std::make_error_code(std::errc(result)).message());
  }
};

}  // namespace manyworlds::inline v0
