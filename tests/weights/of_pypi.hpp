// A file that PyPI's safetensors has written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace manyworlds_tests {

inline std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

/// Its header. safetensors 0.8.0 with numpy 2.4.6 has written the file by
/// `safetensors.numpy.save({"b": arange(3, dtype=int64) - 1, "scalar": array(2.5),
/// "w": arange(24, dtype=float32).reshape(4, 6), "empty": zeros((0, 4), float16),
/// "half": array([1.5, -2], float16), "mask": array([True, False])},
/// metadata={"format": "pt", "made by": "ü"})`. It fills the header up with spaces.
inline const std::string& header_of_pypi() {
  static const std::string header =
      R"({"__metadata__":{"format":"pt","made by":"ü"},)"
      R"("b":{"dtype":"I64","shape":[3],"data_offsets":[0,24]},)"
      R"("scalar":{"dtype":"F64","shape":[],"data_offsets":[24,32]},)"
      R"("w":{"dtype":"F32","shape":[4,6],"data_offsets":[32,128]},)"
      R"("empty":{"dtype":"F16","shape":[0,4],"data_offsets":[128,128]},)"
      R"("half":{"dtype":"F16","shape":[2],"data_offsets":[128,132]},)"
      R"("mask":{"dtype":"BOOL","shape":[2],"data_offsets":[132,134]}}      )";
  return header;
}
inline constexpr std::uint64_t bytes_of_pypi = 550;

/// All of it, byte for byte.
inline std::string file_of_pypi() {
  constexpr std::string_view data =
      "ffffffffffffffff000000000000000001000000000000000000000000000440000000000000"
      "803f0000004000004040000080400000a0400000c0400000e040000000410000104100002041"
      "0000304100004041000050410000604100007041000080410000884100009041000098410000"
      "a0410000a8410000b0410000b841003e00c00100";
  const auto nibble = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string file("\x98\x01\0\0\0\0\0\0", 8);
  file += header_of_pypi();
  for (std::size_t i = 0; i < data.size(); i += 2)
    file += static_cast<char>(nibble(data[i]) * 16 + nibble(data[i + 1]));
  return file;
}

}  // namespace manyworlds_tests
