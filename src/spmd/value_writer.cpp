#include "manyworlds/spmd/value_writer.hpp"

#include <limits>
#include <stdexcept>

#include "manyworlds/detail/assertion.hpp"
#include "spmd/value_layout.hpp"

namespace manyworlds::inline v0 {

std::string_view describe(value_kind kind) noexcept {
  switch (kind) {
    case value_kind::none:
      return "nothing";
    case value_kind::boolean:
      return "a bool";
    case value_kind::integer:
      return "an integer";
    case value_kind::unsigned_integer:
      return "an unsigned integer";
    case value_kind::real:
      return "a floating-point number";
    case value_kind::text:
      return "a text";
    case value_kind::bytes:
      return "bytes";
    case value_kind::element_type:
      return "a dtype";
    case value_kind::shape:
      return "a shape";
    case value_kind::place:
      return "a memory place";
    case value_kind::elements:
      return "elements";
    case value_kind::list:
      return "a list";
    case value_kind::record:
      return "a record";
    case value_kind::tensor:
      return "a tensor";
    case value_kind::reference:
      return "a dref";
  }
  return "an unknown value";
}

void value_writer::put(const void* from, std::size_t size) {
  const auto* raw = static_cast<const std::byte*>(from);
  written_.insert(written_.end(), raw, raw + size);
}

void value_writer::begin(value_kind kind) {
  // Most calls are shorter, so they are allocated once.
  if (written_.capacity() == 0) written_.reserve(128);
  put_number(kind);
}

void value_writer::none() { begin(value_kind::none); }

void value_writer::boolean(bool value) {
  begin(value_kind::boolean);
  put_number(static_cast<std::uint8_t>(value));
}

void value_writer::integer(std::int64_t value) {
  begin(value_kind::integer);
  put_number(value);
}

void value_writer::unsigned_integer(std::uint64_t value) {
  // A number has one form, so that the untyped values of a call compare.
  constexpr auto most =
      static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (value <= most) return integer(static_cast<std::int64_t>(value));
  begin(value_kind::unsigned_integer);
  put_number(value);
}

void value_writer::real(double value) {
  begin(value_kind::real);
  put_number(value);
}

void value_writer::text(std::string_view value) {
  begin(value_kind::text);
  put_number(static_cast<std::uint64_t>(value.size()));
  put(value.data(), value.size());
}

void value_writer::bytes(std::span<const std::byte> value) {
  begin(value_kind::bytes);
  put_data(const_buffer_view(value));
}

void value_writer::element_type(dtype value) {
  begin(value_kind::element_type);
  put_number(value);
}

void value_writer::shape(const manyworlds::shape& value) {
  begin(value_kind::shape);
  put_number(static_cast<std::uint8_t>(value.dimensions()));
  put(value.lengths().data(), value.lengths().size_bytes());
}

void value_writer::place(memory_place value) {
  begin(value_kind::place);
  put_number(static_cast<std::int32_t>(value.device));
}

void value_writer::list(std::size_t count) {
  begin(value_kind::list);
  put_number(static_cast<std::uint64_t>(count));
}

void value_writer::elements(const_buffer_view values) {
  begin(value_kind::elements);
  put_number(values.type());
  put_data(values);
}

void value_writer::record(std::span<const std::byte> value) {
  begin(value_kind::record);
  put_number(static_cast<std::uint64_t>(value.size()));
  put(value.data(), value.size());
}

void value_writer::tensor(const manyworlds::tensor& value) {
  const const_buffer_view elements = value.view();
  begin(value_kind::tensor);
  put_number(value.type());
  put_number(static_cast<std::uint8_t>(value.shape().dimensions()));
  put(value.shape().lengths().data(), value.shape().lengths().size_bytes());
  put_data(elements);
}

void value_writer::reference(detail::register_id which) {
  begin(value_kind::reference);
  put_number(which.index);
  put_number(which.generation);
}

void value_writer::put_data(const_buffer_view values) {
  const std::size_t bytes = values.size_bytes();
  put_number(static_cast<std::uint64_t>(bytes));
  if (bytes > detail::most_bytes_inside) {
    put_number(detail::data_place::beside);
    beside_.push_back(values.as_bytes());
    return;
  }
  put_number(detail::data_place::inside);
  // Aligned here, it is so where the message is received, and can be read in place.
  constexpr std::byte zeros[8]{};
  const std::size_t padding = detail::padding_at(written_.size(), size_of(values.type()));
  MW_ASSERT(padding < sizeof zeros, "no element is larger than eight bytes");
  put(zeros, padding);
  put(values.data(), bytes);
}

}  // namespace manyworlds::inline v0
