// Files of weights, written byte by byte.
#pragma once

#include <doctest/doctest.h>
#include <stdlib.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "support/pattern.hpp"

namespace manyworlds_tests {

/// A tensor as a file has it.
struct written_tensor {
  std::string name;
  std::string type;
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> bytes;
};

/// Makes a tensor of bytes that tell their place and their tensor.
inline written_tensor made_tensor(std::string name, std::string type,
                                  std::size_t element_bytes,
                                  std::vector<std::int64_t> shape, unsigned seed = 1) {
  std::size_t count = 1;
  for (const std::int64_t length : shape) count *= static_cast<std::size_t>(length);
  return {std::move(name), std::move(type), std::move(shape),
          manyworlds::testing::pattern(count * element_bytes, seed)};
}

/// Returns the bytes of a file of these tensors.
inline std::string safetensors_of(const std::vector<written_tensor>& tensors) {
  std::string header = "{";
  std::string data;
  for (const written_tensor& each : tensors) {
    std::string lengths;
    for (const std::int64_t length : each.shape)
      lengths += (lengths.empty() ? "" : ",") + std::to_string(length);
    header += (header.size() > 1 ? ",\"" : "\"") + each.name + "\":{\"dtype\":\"" +
              each.type + "\",\"shape\":[" + lengths + "],\"data_offsets\":[" +
              std::to_string(data.size()) + "," +
              std::to_string(data.size() + each.bytes.size()) + "]}";
    data.append(reinterpret_cast<const char*>(each.bytes.data()), each.bytes.size());
  }
  header += "}";
  std::string file;
  for (unsigned i = 0; i < 8; ++i)
    file += static_cast<char>(std::uint64_t{header.size()} >> (8 * i) & 0xff);
  return file + header + data;
}

/// A folder until the end of the case.
class weight_folder {
 public:
  weight_folder() {
    std::string name = "/tmp/mw-weights-XXXXXX";
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  weight_folder(const weight_folder&) = delete;
  weight_folder& operator=(const weight_folder&) = delete;
  ~weight_folder() { std::filesystem::remove_all(path_); }

  const std::string& path() const { return path_; }
  std::string at(const std::string& name) const { return path_ + "/" + name; }
  /// Writes a file. Returns its path.
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(at(name), std::ios::binary) << bytes;
    return at(name);
  }

 private:
  std::string path_;
};

}  // namespace manyworlds_tests
