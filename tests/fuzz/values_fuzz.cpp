// The values of a remote function's call: whatever the bytes, they are read or refused
// within what has come, and what was read is the same when it is written again.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "input.hpp"
#include "manyworlds/spmd/any_value.hpp"

using namespace manyworlds;

namespace {

using one_of_each =
    std::tuple<std::vector<std::string>, std::vector<double>, std::optional<shape>, dtype,
               std::vector<std::byte>, std::array<std::int8_t, 2>, memory_place, bool>;

/// Data beside the values, in memory of exactly its size.
struct beside {
  explicit beside(std::span<const std::byte> data)
      : memory(std::make_shared<std::vector<std::byte>>(data.begin(), data.end())) {}
  std::shared_ptr<std::vector<std::byte>> memory;
};

void read_each(value_reader in) {
  const one_of_each once = argument<one_of_each>::read(in);
  value_writer out, again;
  argument<one_of_each>::write(out, once);
  if (!out.beside().empty()) return;
  value_reader written(out.written());
  const one_of_each twice = argument<one_of_each>::read(written);
  argument<one_of_each>::write(again, twice);
  fuzzing::must(std::ranges::equal(out.written(), again.written()));
}

void read_tensor(value_reader in) {
  const tensor x = argument<tensor>::read(in);
  fuzzing::must(x.view().size_bytes() == x.size_bytes());
  std::size_t sum = 0;
  for (const std::byte each :
       std::span(static_cast<const std::byte*>(x.data()), x.size_bytes()))
    sum += static_cast<std::size_t>(each);
  fuzzing::must(sum <= x.size_bytes() * 255);
}

/// Reads whatever comes, by its kind.
void read_any(value_reader in) {
  while (!in.is_at_end()) {
    switch (in.next()) {
      case value_kind::none:
        in.none();
        break;
      case value_kind::boolean:
        static_cast<void>(in.boolean());
        break;
      case value_kind::integer:
        static_cast<void>(in.integer());
        break;
      case value_kind::unsigned_integer:
        static_cast<void>(in.unsigned_integer());
        break;
      case value_kind::real:
        static_cast<void>(in.real());
        break;
      case value_kind::text:
        static_cast<void>(std::string(in.text()));
        break;
      case value_kind::bytes: {
        const auto found = in.bytes();
        static_cast<void>(std::vector<std::byte>(found.begin(), found.end()));
        break;
      }
      case value_kind::element_type:
        static_cast<void>(name_of(in.element_type()));
        break;
      case value_kind::shape:
        static_cast<void>(in.shape().text());
        break;
      case value_kind::place:
        static_cast<void>(in.place());
        break;
      case value_kind::elements:
        static_cast<void>(in.elements());
        break;
      case value_kind::list:
        static_cast<void>(in.list());
        break;
      case value_kind::record:
        static_cast<void>(in.record(4));
        break;
      case value_kind::tensor:
        return read_tensor(in);
      case value_kind::reference:
        static_cast<void>(in.reference());
        break;
    }
  }
}

/// What is read as any value is written as it was, and is what its parts are.
void read_any_value(value_reader in) {
  const any_value once = in.any();
  value_writer out, again;
  out.any(once);
  if (!out.beside().empty()) return;
  value_reader written(out.written());
  again.any(written.any());
  fuzzing::must(written.is_at_end());
  fuzzing::must(std::ranges::equal(out.written(), again.written()));
  if (once.kind() == value_kind::list) {
    const auto parts = once.as<std::vector<any_value>>();
    fuzzing::must(parts.size() < out.written().size());
    static_cast<void>(any_value(parts));
  }
  static_cast<void>(once.as<one_of_each>());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  const auto rest = std::as_bytes(std::span(data, size)).subspan(3);
  std::uint16_t split = 0;
  std::memcpy(&split, data + 1, sizeof split);
  const std::size_t front = std::min<std::size_t>(split, rest.size());
  // Aligned as a message is, and no byte longer.
  const tensor values = tensor::copy_of(rest.first(front));
  const beside more(rest.subspan(front));
  const value_reader in({static_cast<const std::byte*>(values.data()), front},
                        *more.memory, more.memory);
  try {
    switch (data[0] % 4) {
      case 0:
        read_each(in);
        break;
      case 1:
        read_tensor(in);
        break;
      case 2:
        read_any(in);
        break;
      default:
        read_any_value(in);
    }
  } catch (const value_error&) {}
  return 0;
}
