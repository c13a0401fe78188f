// Headers of weights and their indexes: whatever the bytes, they are read or refused, and
// what was read lies in the file, without a gap. The requests for each part read its
// bytes, each once, and no file beside the index's folder is named.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <vector>

#include "input.hpp"
#include "manyworlds/weights/safetensors.hpp"
#include "weights/read_plan.hpp"

using namespace manyworlds;

namespace {

/// Returns how many bytes of the part are read.
std::uint64_t plan_reads(const stored_tensor& of, const weight_slice& slice) {
  read_plan plan(slice.ranges());
  std::uint64_t read = 0;
  const auto belongs = [&](std::uint64_t into, std::uint64_t bytes) {
    fuzzing::must(into == read);
    read += bytes;
  };
  while (const auto next = plan.next()) {
    fuzzing::must(next->bytes > 0 && next->bytes <= read_plan::most_bytes);
    fuzzing::must(next->offset >= of.offset);
    fuzzing::must(next->offset + next->bytes <= of.offset + of.bytes);
    if (next->pieces.empty()) belongs(next->into, next->bytes);
    for (const weight_range& piece : next->pieces) {
      fuzzing::must(piece.offset >= next->offset);
      fuzzing::must(piece.offset + piece.bytes <= next->offset + next->bytes);
      belongs(piece.into, piece.bytes);
    }
  }
  return read;
}

void read_index(std::span<const std::byte> text) {
  for (const auto& [name, file] : parse_weight_index(text)) {
    const std::filesystem::path path = std::filesystem::path("folder") / file;
    fuzzing::must(path.parent_path() == "folder" && path.has_filename());
    fuzzing::must(path.lexically_normal() == path);
  }
}

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
        fuzzing::must(slice.is_of(each));
        fuzzing::must(plan_reads(each, slice) == slice.bytes());
        read += slice.bytes();
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
      read_index(text);
    } else {
      read_header(text, data_bytes);
    }
  } catch (const weights_error&) {}
  return 0;
}
