#include "manyworlds/spmd/any_value.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "spmd/value_layout.hpp"

namespace manyworlds::inline v0 {

namespace detail {

struct kept_value {
  std::vector<std::byte> written;
  std::span<std::byte> beside;
  std::shared_ptr<void> owner;
};

void refuse_rest() { throw value_error("more than one value is written for one"); }

namespace {

/// Copies a value that contains no others.
void copy_single(value_reader& in, value_writer& out) {
  const value_kind kind = in.next();
  switch (kind) {
    case value_kind::none:
      in.none();
      return out.none();
    case value_kind::boolean:
      return out.boolean(in.boolean());
    case value_kind::integer:
      return out.integer(in.integer());
    case value_kind::unsigned_integer:
      return out.unsigned_integer(in.unsigned_integer());
    case value_kind::real:
      return out.real(in.real());
    case value_kind::text:
      return out.text(in.text());
    case value_kind::bytes:
      return out.bytes(in.bytes());
    case value_kind::element_type:
      return out.element_type(in.element_type());
    case value_kind::shape:
      return out.shape(in.shape());
    case value_kind::place:
      return out.place(in.place());
    case value_kind::elements:
      return out.elements(in.elements());
    case value_kind::record:
      return out.record(in.record());
    case value_kind::tensor:
      return out.tensor(in.tensor());
    case value_kind::list:
    case value_kind::reference:
      break;
  }
  throw value_error(std::string(describe(kind)) + ", where a value is wanted");
}

/// Copies a value with all that it contains. It calls itself for no list within a list:
/// how deep they stand is a stranger's word.
void copy_value(value_reader& in, value_writer& out) {
  std::array<std::size_t, any_value::most_levels> left{};
  std::size_t levels = 0;
  for (;;) {
    if (in.next() == value_kind::list) {
      if (levels == left.size())
        throw value_error("lists within lists of more than 64 levels");
      left[levels] = in.list();
      out.list(left[levels++]);
    } else {
      copy_single(in, out);
    }
    while (levels > 0 && left[levels - 1] == 0) --levels;
    if (levels == 0) return;
    --left[levels - 1];
  }
}

}  // namespace

}  // namespace detail

any_value value_reader::any() {
  value_writer out;
  const std::size_t begin =
      beside_taken_ + detail::padding_at(beside_taken_, detail::beside_alignment);
  detail::copy_value(*this, out);
  const std::span<const std::byte> written = out.written();
  any_value read;
  // A list of many numbers has little beside them.
  if (written.size() <= any_value::small_bytes) {
    std::ranges::copy(written, read.small_.begin());
    read.size_ = static_cast<std::uint8_t>(written.size());
    return read;
  }
  const auto kept = std::make_shared<detail::kept_value>();
  kept->written.assign(written.begin(), written.end());
  // What stands beside it is one piece, which begins where a message's may.
  if (!out.beside().empty()) {
    kept->beside = beside_.subspan(begin, beside_taken_ - begin);
    kept->owner = owner_;
    if (owner_ == nullptr) {
      const auto copy =
          std::make_shared<manyworlds::tensor>(manyworlds::tensor::copy_of(kept->beside));
      kept->beside = std::as_writable_bytes(copy->as<std::uint8_t>());
      kept->owner = copy;
    }
  }
  read.kept_ = kept;
  return read;
}

void value_writer::any(const any_value& value) {
  value_reader in = detail::access::core(value);
  detail::copy_value(in, *this);
}

any_value::any_value(tensor&& value) {
  value_writer out;
  out.tensor(value);
  const auto owner = std::make_shared<tensor>(std::move(value));
  std::span<std::byte> beside;
  if (!out.beside().empty())
    beside = {static_cast<std::byte*>(owner->data()), owner->size_bytes()};
  *this = value_reader(out.written(), beside, owner).any();
}

any_value any_value::keep_one(value_reader in) {
  any_value kept = in.any();
  if (!in.is_at_end()) detail::refuse_rest();
  return kept;
}

any_value any_value::keep(const value_writer& written) {
  if (written.beside().empty()) return keep_one(value_reader(written.written()));
  std::size_t size = 0;
  for (const const_buffer_view& part : written.beside())
    size += detail::padding_at(size, detail::beside_alignment) + part.size_bytes();
  // Zeros: padding that was not set is read where the value is sent on.
  const auto block = std::make_shared<tensor>(
      tensor::zeros(static_cast<std::int64_t>(size), dtype::uint8));
  const std::span<std::byte> beside = std::as_writable_bytes(block->as<std::uint8_t>());
  std::size_t at = 0;
  for (const const_buffer_view& part : written.beside()) {
    at += detail::padding_at(at, detail::beside_alignment);
    std::memcpy(beside.data() + at, part.data(), part.size_bytes());
    at += part.size_bytes();
  }
  return keep_one(value_reader(written.written(), beside, block));
}

value_reader any_value::reader() const {
  if (kept_ == nullptr) return value_reader(std::span(small_).first(size_));
  return value_reader(kept_->written, kept_->beside, kept_->owner);
}

}  // namespace manyworlds::inline v0
