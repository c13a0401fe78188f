#include "manyworlds/detail/packed_values.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>

#include "manyworlds/failure.hpp"
#include "manyworlds/memory/tensor.hpp"
#include "spmd/value_layout.hpp"

namespace manyworlds::inline v0::detail {

// A text has the length of what was written, this, and what stands beside it, each part
// where `value_reader` looks for it.
using written_size = std::uint64_t;

/// Returns what stands at the next multiple of the parts' alignment.
static std::size_t aligned_after(std::size_t offset) noexcept {
  return offset + padding_at(offset, beside_alignment);
}

std::string pack(const value_writer& values) {
  const std::span<const std::byte> written = values.written();
  const std::size_t begin = aligned_after(sizeof(written_size) + written.size());
  std::size_t size = sizeof(written_size) + written.size();
  std::size_t beside = 0;
  for (const const_buffer_view& part : values.beside()) {
    beside = aligned_after(beside) + part.size_bytes();
    size = begin + beside;
  }
  std::string packed(size, '\0');
  const written_size length = written.size();
  std::memcpy(packed.data(), &length, sizeof length);
  std::memcpy(packed.data() + sizeof length, written.data(), written.size());
  std::size_t at = 0;
  for (const const_buffer_view& part : values.beside()) {
    at = aligned_after(at);
    std::memcpy(packed.data() + begin + at, part.data(), part.size_bytes());
    at += part.size_bytes();
  }
  return packed;
}

unpacked_values::unpacked_values(std::string_view packed) {
  written_size length = 0;
  if (packed.size() < sizeof length)
    throw value_error("the values end within their head");
  std::memcpy(&length, packed.data(), sizeof length);
  if (length > packed.size() - sizeof length)
    throw value_error("the values end too early");
  // Views of elements need alignment, and what was received has none. Tensors share the
  // copy, which so outlives the message.
  const auto kept =
      std::make_shared<tensor>(tensor::copy_of(std::as_bytes(std::span(packed))));
  const std::span<std::byte> all = std::as_writable_bytes(kept->as<std::uint8_t>());
  const std::span<std::byte> values = all.subspan(sizeof length, length);
  const std::size_t begin = aligned_after(sizeof length + length);
  std::span<std::byte> beside;
  if (begin < all.size()) beside = all.subspan(begin);
  if (all.size() < begin && all.size() != sizeof length + length)
    throw value_error("more stands behind the values");
  reader_.emplace(values, beside, kept);
  kept_ = kept;
}

void check_argument_count(std::size_t wanted, std::size_t got) {
  if (wanted == got) return;
  throw value_error(fmt::format("{} arguments, where {} are wanted", got, wanted));
}

void check_end(const value_reader& in) {
  if (!in.is_at_end()) throw value_error("more values than are wanted");
  if (!in.has_read_all()) throw value_error("data to which no value refers");
}

void refuse_argument(std::size_t number, std::string_view why) {
  const std::string text =
      number == 0 ? std::string(why) : fmt::format("argument {}: {}", number, why);
  throw world_error(failure(cause::invalid_argument, text));
}

unpacked_values unpacked_arguments(std::string_view packed) {
  try {
    return unpacked_values(packed);
  } catch (const value_error& e) {
    refuse_argument(0, e.what());
  }
}

}  // namespace manyworlds::inline v0::detail
