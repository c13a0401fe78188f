#include "weights.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <fstream>
#include <manyworlds/spmd.hpp>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

namespace {

/// splitmix64: the same numbers with each compiler and library.
class random_numbers {
 public:
  explicit random_numbers(std::uint64_t seed) noexcept : state_(seed) {}
  /// Returns a number between -1 and 1.
  float next() noexcept {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return static_cast<float>((z ^ (z >> 31)) >> 40) / static_cast<float>(1 << 23) - 1;
  }

 private:
  std::uint64_t state_;
};

/// The tensors of a file, one behind another.
class weight_writer {
 public:
  explicit weight_writer(std::uint64_t seed) : random_(seed) {}

  /// Adds a matrix of numbers up to `scale` over the root of a row's length: what it is
  /// multiplied with keeps its size then.
  void matrix(const std::string& name, int rows, int columns, float scale) {
    const float most = scale * std::sqrt(3 / static_cast<float>(columns));
    begin(name, {rows, columns});
    for (int i = 0; i < rows * columns; ++i) values_.push_back(most * random_.next());
    end(name);
  }
  /// Adds the factors of a norm, which are near to one.
  void norm(const std::string& name, int width) {
    begin(name, {width});
    for (int i = 0; i < width; ++i) values_.push_back(1 + random_.next() / 10);
    end(name);
  }

  void write(const std::string& path) const {
    const std::string header = header_.dump();
    std::array<char, mw::safetensors_header::prefix_bytes> length{};
    for (std::size_t i = 0; i < length.size(); ++i)
      length[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
    std::ofstream out(path, std::ios::binary);
    out.exceptions(std::ios::badbit | std::ios::failbit);
    out.write(length.data(), length.size());
    out.write(header.data(), static_cast<std::streamsize>(header.size()));
    const auto bytes = std::as_bytes(std::span(values_));
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
    out.close();
  }

 private:
  void begin(const std::string& name, std::vector<int> shape) {
    header_[name] = {{"dtype", "F32"}, {"shape", shape}};
    begun_at_ = values_.size();
  }
  void end(const std::string& name) {
    header_[name]["data_offsets"] = {begun_at_ * sizeof(float),
                                     values_.size() * sizeof(float)};
  }

  random_numbers random_;
  nlohmann::ordered_json header_;
  std::vector<float> values_;
  std::size_t begun_at_ = 0;
};

}  // namespace

void write_weights(const std::string& path, const model_config& of, std::uint64_t seed) {
  weight_writer out(seed);
  const int kv_width = of.kv_heads * of.head_width();
  out.matrix("model.embed_tokens.weight", of.tokens, of.width,
             std::sqrt(static_cast<float>(of.width)));
  for (int i = 0; i < of.layers; ++i) {
    const std::string at = fmt::format("model.layers.{}.", i);
    out.norm(at + "input_layernorm.weight", of.width);
    out.matrix(at + "self_attn.q_proj.weight", of.width, of.width, 2);
    out.matrix(at + "self_attn.k_proj.weight", kv_width, of.width, 2);
    out.matrix(at + "self_attn.v_proj.weight", kv_width, of.width, 1);
    out.matrix(at + "self_attn.o_proj.weight", of.width, of.width, 2);
    out.norm(at + "post_attention_layernorm.weight", of.width);
    out.matrix(at + "mlp.gate_proj.weight", of.inner, of.width, 2);
    out.matrix(at + "mlp.up_proj.weight", of.inner, of.width, 1);
    out.matrix(at + "mlp.down_proj.weight", of.width, of.inner, 1);
  }
  out.norm("model.norm.weight", of.width);
  out.matrix("lm_head.weight", of.tokens, of.width, 2);
  out.write(path);
}
