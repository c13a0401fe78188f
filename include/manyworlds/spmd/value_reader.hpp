// Value reader: reads the values of a call or of an answer, with every length checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "manyworlds/spmd/value_writer.hpp"

namespace manyworlds::inline v0 {

class any_value;

/// Thrown by a reader for a value of another kind than is wanted, or out of its range. In
/// a call it becomes the error of that call, which names the argument.
class MANYWORLDS_EXPORT value_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Reads values in the order in which they were written. `argument<T>` uses it.
///
///     mw::value_reader in(values);
///     const std::string path(in.text());
///     const std::size_t more = in.list();
///     const auto first = mw::argument<int>::read(in);
///
/// Lifetime: texts, bytes and elements that it returns refer to the call, and are gone
/// with it. A tensor shares its memory.
///
/// Errors: value_error for a value of another kind, and where the values end too early or
/// contradict themselves (law 11).
class value_reader {
 public:
  /// Reads `values`, and behind them what they refer to, which stands in `beside`.
  /// `owner` keeps the latter.
  explicit value_reader(std::span<const std::byte> values,
                        std::span<std::byte> beside = {},
                        std::shared_ptr<void> owner = nullptr) noexcept
      : values_(values), beside_(beside), owner_(std::move(owner)) {}

  /// Returns the kind of the next value, and consumes nothing.
  [[nodiscard]] value_kind next() const;
  /// Returns whether all values were read.
  [[nodiscard]] bool is_at_end() const noexcept { return taken_ == values_.size(); }
  /// Returns whether what stands beside the values has been read, too.
  [[nodiscard]] bool has_read_all() const noexcept {
    return is_at_end() && beside_taken_ == beside_.size();
  }

  /// Reads an empty optional, or the result of a function that gives nothing.
  void none();
  /// Returns true or false.
  [[nodiscard]] bool boolean();
  /// Returns a number; also one that was written without a sign and fits.
  [[nodiscard]] std::int64_t integer();
  /// Returns a number; also one that was written with a sign and is not negative.
  [[nodiscard]] std::uint64_t unsigned_integer();
  /// Returns a number; also an integer that a double has exactly.
  [[nodiscard]] double real();
  /// Returns bytes that people read.
  [[nodiscard]] std::string_view text();
  /// Returns bytes.
  [[nodiscard]] std::span<const std::byte> bytes();
  /// Returns a type of elements.
  [[nodiscard]] dtype element_type();
  /// Returns a shape.
  [[nodiscard]] manyworlds::shape shape();
  /// Returns where memory lies.
  [[nodiscard]] memory_place place();
  /// Returns how many values follow as the list's.
  [[nodiscard]] std::size_t list();
  /// Returns elements. They need not be aligned: see `elements_of`.
  [[nodiscard]] const_buffer_view elements();
  /// Returns a record. Errors: value_error if it has another size.
  [[nodiscard]] std::span<const std::byte> record(std::size_t size);
  /// Returns a record of any size.
  [[nodiscard]] std::span<const std::byte> record();
  /// Returns a tensor in host memory, which keeps its elements alive.
  [[nodiscard]] manyworlds::tensor tensor();
  /// Returns which register a `dref` named.
  [[nodiscard]] detail::register_id reference();
  /// Returns a value of any kind but a `dref`, with all that it contains. Its large data
  /// shares the memory of the call. Errors: value_error for lists within lists of more
  /// than 64 levels, too.
  [[nodiscard]] any_value any();

 private:
  struct placed_data {
    std::span<const std::byte> bytes;
    /// The same as memory that the owner keeps; null if it stands inside the values.
    std::byte* shared;
  };

  void expect(value_kind wanted);
  std::span<const std::byte> take(std::size_t size);
  template <class T>
  T take_number();
  dtype take_dtype();
  manyworlds::shape take_shape();
  /// Takes the bytes of elements of that type from where they stand.
  placed_data take_data(dtype type);

  std::span<const std::byte> values_;
  std::size_t taken_ = 0;
  std::span<std::byte> beside_;
  std::size_t beside_taken_ = 0;
  std::shared_ptr<void> owner_;
};

}  // namespace manyworlds::inline v0
