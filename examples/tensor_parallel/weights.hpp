// Weights: a file of safetensors that is made from a seed, and parts of it.
#pragma once

#include <cstdint>
#include <manyworlds/mw.hpp>
#include <manyworlds/spmd.hpp>
#include <string>
#include <string_view>

#include "model.hpp"

/// Writes weights that the seed decides, under the names that Llama's have.
void write_weights(const std::string& path, const model_config& of, std::uint64_t seed);

/// Reads tensors of one file, or one of several parts of them.
class weight_file {
 public:
  explicit weight_file(const std::string& path);
  weight_file(const weight_file&) = delete;
  weight_file& operator=(const weight_file&) = delete;
  ~weight_file();

  [[nodiscard]] mw::tensor whole(std::string_view name) const;
  /// Takes part `rank` of `size` along the dimension.
  [[nodiscard]] mw::tensor split(std::string_view name, std::size_t dimension, int rank,
                                 int size) const;

 private:
  void read(void* into, std::size_t bytes, std::uint64_t offset) const;
  [[nodiscard]] mw::tensor read(const mw::stored_tensor& of,
                                const mw::weight_slice& part) const;

  std::string path_;
  int file_;
  mw::safetensors_header header_;
};
