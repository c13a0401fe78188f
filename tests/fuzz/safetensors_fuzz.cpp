// Headers of weights and their indexes: whatever the bytes, they are read or refused, and
// what was read lies in the file, without a gap.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "input.hpp"
#include "manyworlds/weights/safetensors.hpp"

using namespace manyworlds;

namespace {

void read_header(std::span<const std::byte> text, std::uint64_t data_bytes) {
  const std::uint64_t file = 8 + text.size() + data_bytes;
  const auto header = safetensors_header::parse(text, file);
  std::uint64_t all = 0;
  for (const stored_tensor& each : header.tensors()) {
    fuzzing::must(each.offset >= 8 + text.size());
    fuzzing::must(each.offset + each.bytes <= file);
    fuzzing::must(each.bytes == each.shape.elements() * each.element_bytes);
    all += each.bytes;
    for (std::size_t d = 0; d < each.shape.dimensions(); ++d) {
      const std::int64_t parts = std::clamp<std::int64_t>(each.shape[d], 1, 4);
      if (each.shape[d] % parts != 0 || each.bytes > 1 << 16) continue;
      std::uint64_t read = 0;
      for (std::int64_t part = 0; part < parts; ++part) {
        const auto slice = weight_slice::split(each, d, part, parts);
        for (const weight_range& range : slice.ranges()) {
          fuzzing::must(range.offset >= each.offset);
          fuzzing::must(range.offset + range.bytes <= each.offset + each.bytes);
          read += range.bytes;
        }
      }
      fuzzing::must(read == each.bytes);
    }
  }
  fuzzing::must(all == data_bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  std::uint16_t data_bytes = 0;
  std::memcpy(&data_bytes, data + 1, sizeof data_bytes);
  const auto text = std::as_bytes(std::span(data, size)).subspan(3);
  try {
    if (data[0] % 4 == 0) {
      static_cast<void>(parse_weight_index(text));
    } else {
      read_header(text, data_bytes);
    }
  } catch (const weights_error&) {}
  return 0;
}
