// Values: how the arguments and results of remote functions are written and read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "manyworlds/detail/access.hpp"
#include "manyworlds/memory/buffer_view.hpp"
#include "manyworlds/memory/dtype.hpp"
#include "manyworlds/memory/shape.hpp"
#include "manyworlds/memory/tensor.hpp"

namespace manyworlds::inline v0 {

class any_value;

/// Kinds of values, as they stand before each value on the wire: never renumber them.
enum class value_kind : std::uint8_t {
  none = 0,     ///< an empty optional, or the result of a function that gives nothing
  boolean = 1,  ///< true or false
  integer = 2,  ///< a signed number of 64 bits
  unsigned_integer = 3,  ///< an unsigned number that does not fit `integer`
  real = 4,              ///< a double
  text = 5,              ///< bytes that people read
  bytes = 6,             ///< bytes
  element_type = 7,      ///< a `dtype`
  shape = 8,             ///< a `shape`
  place = 9,             ///< a `memory_place`
  elements = 10,         ///< numbers of one `dtype`, of one dimension
  list = 11,       ///< values, one after the other: of a vector, an array or a tuple
  record = 12,     ///< the bytes of a plain struct
  tensor = 13,     ///< a tensor; its elements go beside the values
  reference = 14,  ///< a register, by its `dref`
};

/// Returns words for people: "a text", "a tensor" ...
[[nodiscard]] std::string_view describe(value_kind kind) noexcept;

namespace detail {

/// Names a register of a session's workers. Generations tell apart what was there one
/// after the other, so that an index is never mistaken for a later value (S-d).
struct register_id {
  std::uint32_t index = 0;
  std::uint32_t generation = 0;
  friend constexpr bool operator==(register_id, register_id) noexcept = default;
};

}  // namespace detail

/// Writes the values of a call, one after the other. `argument<T>` uses it.
///
///     mw::value_writer out;
///     out.text("a/b");
///     out.list(2);  // the next two
///     out.integer(-1);
///     out.real(2.5);
///
/// Small values are copied. What `elements`, `bytes` and `tensor` are given beyond 4 KiB
/// is referred to. Lifetime: that memory must live until the await on the call has ended.
class value_writer {
 public:
  value_writer() noexcept = default;

  /// Writes an empty optional, or the result of a function that gives nothing.
  void none();
  /// Writes true or false.
  void boolean(bool value);
  /// Writes a signed number.
  void integer(std::int64_t value);
  /// Writes an unsigned number.
  void unsigned_integer(std::uint64_t value);
  /// Writes a number with a fraction.
  void real(double value);
  /// Writes bytes that people read.
  void text(std::string_view value);
  /// Writes bytes.
  void bytes(std::span<const std::byte> value);
  /// Writes a type of elements.
  void element_type(dtype value);
  /// Writes a shape.
  void shape(const manyworlds::shape& value);
  /// Writes where memory lies.
  void place(memory_place value);
  /// Begins a list of that many values, which follow.
  void list(std::size_t count);
  /// Writes elements of one dimension.
  void elements(const_buffer_view values);
  /// Writes the bytes of a plain struct; its reader must know their number.
  void record(std::span<const std::byte> value);
  /// Writes a tensor in host memory. Errors: std::invalid_argument if it lies elsewhere.
  void tensor(const manyworlds::tensor& value);
  /// Writes a register, by its `dref`.
  void reference(detail::register_id which);
  /// Writes what another value holds. Errors: none, as it was read before.
  void any(const any_value& value);

  /// Returns what was written, without what is referred to.
  [[nodiscard]] std::span<const std::byte> written() const noexcept { return written_; }
  /// Returns what is referred to, in the order of writing.
  [[nodiscard]] std::span<const const_buffer_view> beside() const noexcept {
    return beside_;
  }

 private:
  friend struct detail::access;
  /// Refers to what another has written, and to what stood beside that.
  value_writer(const std::vector<std::byte>& written,
               const std::vector<std::vector<std::byte>>& beside)
      : written_(written), beside_(beside.begin(), beside.end()) {}

  void begin(value_kind kind);
  void put(const void* from, std::size_t size);
  template <class T>
  void put_number(T value) {
    put(&value, sizeof value);
  }
  void put_data(const_buffer_view values);

  std::vector<std::byte> written_;
  std::vector<const_buffer_view> beside_;
};

}  // namespace manyworlds::inline v0
