#include "manyworlds/spmd/value_reader.hpp"

#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "manyworlds/spmd/argument.hpp"
#include "spmd/value_layout.hpp"

namespace manyworlds::inline v0 {

namespace {

[[noreturn]] void refuse_values(const std::string& why) { throw value_error(why); }

constexpr std::uint8_t last_value_kind = static_cast<std::uint8_t>(value_kind::reference);

}  // namespace

std::span<const std::byte> value_reader::take(std::size_t size) {
  if (size > values_.size() - taken_) refuse_values("the values end within one");
  const auto front = values_.subspan(taken_, size);
  taken_ += size;
  return front;
}

template <class T>
T value_reader::take_number() {
  T value;
  std::memcpy(&value, take(sizeof value).data(), sizeof value);
  return value;
}

value_kind value_reader::next() const {
  if (is_at_end()) refuse_values("a value is missing");
  const auto kind = static_cast<std::uint8_t>(values_[taken_]);
  if (kind > last_value_kind)
    refuse_values("there is no kind " + std::to_string(kind) + " of values");
  return static_cast<value_kind>(kind);
}

void value_reader::expect(value_kind wanted) {
  const value_kind found = next();
  if (found != wanted) {
    refuse_values(std::string(describe(found)) + ", where " +
                  std::string(describe(wanted)) + " is wanted");
  }
  ++taken_;
}

void value_reader::none() { expect(value_kind::none); }

bool value_reader::boolean() {
  expect(value_kind::boolean);
  const auto value = take_number<std::uint8_t>();
  if (value > 1) refuse_values("a bool of " + std::to_string(value));
  return value == 1;
}

std::int64_t value_reader::integer() {
  // One that has the other kind does not fit.
  expect(value_kind::integer);
  return take_number<std::int64_t>();
}

std::uint64_t value_reader::unsigned_integer() {
  if (next() == value_kind::unsigned_integer) {
    ++taken_;
    return take_number<std::uint64_t>();
  }
  const std::int64_t value = integer();
  if (value < 0) detail::refuse_range("an unsigned integer");
  return static_cast<std::uint64_t>(value);
}

double value_reader::real() {
  if (next() == value_kind::integer) {
    constexpr std::int64_t exact = std::int64_t{1} << 53;
    const std::int64_t value = integer();
    if (value < -exact || value > exact) detail::refuse_range("a floating-point number");
    return static_cast<double>(value);
  }
  expect(value_kind::real);
  return take_number<double>();
}

std::string_view value_reader::text() {
  expect(value_kind::text);
  const auto raw = take(take_number<std::uint64_t>());
  return {reinterpret_cast<const char*>(raw.data()), raw.size()};
}

std::span<const std::byte> value_reader::bytes() {
  expect(value_kind::bytes);
  return take_data(dtype::uint8).bytes;
}

dtype value_reader::take_dtype() {
  const auto number = take_number<std::uint8_t>();
  const auto type = detail::dtype_from_wire(number);
  if (!type) refuse_values("there is no element type " + std::to_string(number));
  return *type;
}

dtype value_reader::element_type() {
  expect(value_kind::element_type);
  return take_dtype();
}

shape value_reader::take_shape() {
  const std::size_t dimensions = take_number<std::uint8_t>();
  std::array<std::int64_t, manyworlds::shape::most_dimensions> lengths{};
  if (dimensions > lengths.size())
    refuse_values("a shape of " + std::to_string(dimensions) + " dimensions");
  const auto raw = take(dimensions * sizeof lengths[0]);
  if (!raw.empty()) std::memcpy(lengths.data(), raw.data(), raw.size());
  try {
    return manyworlds::shape(std::span<const std::int64_t>(lengths).first(dimensions));
  } catch (const std::invalid_argument& e) {
    refuse_values(e.what());
  }
}

shape value_reader::shape() {
  expect(value_kind::shape);
  return take_shape();
}

memory_place value_reader::place() {
  expect(value_kind::place);
  const auto device = take_number<std::int32_t>();
  if (device < memory_place::host)
    refuse_values("there is no device " + std::to_string(device));
  return {device};
}

std::size_t value_reader::list() {
  expect(value_kind::list);
  const auto count = take_number<std::uint64_t>();
  // Each value takes a byte at least, so that what is reserved for them is bounded.
  if (count > values_.size() - taken_) refuse_values("a list that ends too early");
  return count;
}

value_reader::placed_data value_reader::take_data(dtype type) {
  const auto size = take_number<std::uint64_t>();
  const auto place = take_number<std::uint8_t>();
  if (size % size_of(type) != 0) refuse_values("elements that end within one");
  // Each value has one form, so that one of any kind is written again as it was read.
  const auto wanted = size <= detail::most_bytes_inside ? detail::data_place::inside
                                                        : detail::data_place::beside;
  if (place != static_cast<std::uint8_t>(wanted))
    refuse_values("data that stands where data of its size does not");
  if (wanted == detail::data_place::inside) {
    static_cast<void>(take(detail::padding_at(taken_, size_of(type))));
    return {take(size), nullptr};
  }
  const std::size_t padding = detail::padding_at(beside_taken_, detail::beside_alignment);
  const std::size_t left = beside_.size() - beside_taken_;
  if (padding > left || size > left - padding)
    refuse_values("more data than has come beside the values");
  std::byte* const data = beside_.data() + beside_taken_ + padding;
  beside_taken_ += padding + size;
  return {{data, size}, data};
}

const_buffer_view value_reader::elements() {
  expect(value_kind::elements);
  const dtype type = take_dtype();
  const placed_data found = take_data(type);
  if (found.bytes.empty()) return {nullptr, 0, type};
  return {found.bytes.data(), detail::count_of(found.bytes.size(), type), type};
}

std::span<const std::byte> value_reader::record(std::size_t size) {
  const std::span<const std::byte> found = record();
  if (found.size() != size) {
    refuse_values("a record of " + std::to_string(found.size()) +
                  " bytes, where one of " + std::to_string(size) + " is wanted");
  }
  return found;
}

std::span<const std::byte> value_reader::record() {
  expect(value_kind::record);
  return take(take_number<std::uint64_t>());
}

tensor value_reader::tensor() {
  expect(value_kind::tensor);
  const dtype type = take_dtype();
  const manyworlds::shape of = take_shape();
  const placed_data found = take_data(type);
  if (detail::count_of(found.bytes.size(), type) != of.elements()) {
    refuse_values("a tensor of shape " + of.text() + " with " +
                  std::to_string(found.bytes.size()) + " bytes");
  }
  if (found.bytes.empty()) return {of, type};
  if (!found.shared) {
    return manyworlds::tensor::copy_of({found.bytes.data(), of.elements(), type}, of);
  }
  return {of, buffer_view(found.shared, of.elements(), type), owner_};
}

detail::register_id value_reader::reference() {
  expect(value_kind::reference);
  const auto index = take_number<std::uint32_t>();
  return {index, take_number<std::uint32_t>()};
}

namespace detail {

void refuse_range(std::string_view wanted) {
  refuse_values("a number that is out of the range of " + std::string(wanted));
}

void refuse_count(std::size_t wanted, std::size_t got) {
  refuse_values("a list of " + std::to_string(got) + ", where " + std::to_string(wanted) +
                " are wanted");
}

void refuse_elements(dtype wanted, dtype got) {
  refuse_values("elements of " + std::string(name_of(got)) + ", where " +
                std::string(name_of(wanted)) + " is wanted");
}

void refuse_alignment(dtype type) {
  refuse_values("elements of " + std::string(name_of(type)) + " that are not aligned");
}

}  // namespace detail

}  // namespace manyworlds::inline v0
