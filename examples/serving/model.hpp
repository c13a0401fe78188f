// A small transformer in plain C++: four layers of attention, weights drawn from a seed.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

inline constexpr std::size_t layers = 4;
inline constexpr std::size_t width = 32;
inline constexpr std::size_t words = 64;

using row = std::array<float, width>;

/// Keys and values of all tokens so far, of one layer: what prefill sends to decode.
struct kv_page {
  std::vector<row> keys;
  std::vector<row> values;
};
using kv_cache = std::array<kv_page, layers>;

class model {
 public:
  model() {
    std::mt19937 draw(7);
    std::uniform_real_distribution<float> between(-0.4F, 0.4F);
    const auto fill = [&](auto& rows) {
      for (row& each : rows)
        for (float& one : each) one = between(draw);
    };
    fill(tokens_);
    for (layer& each : layers_) {
      fill(each.query);
      fill(each.key);
      fill(each.value);
      fill(each.out);
    }
  }

  [[nodiscard]] row embed(int token) const {
    return tokens_[static_cast<std::size_t>(token) % words];
  }
  /// Adds the last token's key and value to the page, and returns what goes to the next
  /// layer.
  row step(std::size_t at, const row& in, kv_page& page) const {
    const layer& here = layers_[at];
    page.keys.push_back(times(here.key, in));
    page.values.push_back(times(here.value, in));
    const row query = times(here.query, in);
    std::vector<float> weights;
    float sum = 0;
    for (const row& key : page.keys) {
      weights.push_back(std::exp(dot(query, key)));
      sum += weights.back();
    }
    row mixed{};
    for (std::size_t t = 0; t < weights.size(); ++t)
      for (std::size_t i = 0; i < width; ++i)
        mixed[i] += weights[t] / sum * page.values[t][i];
    row result = times(here.out, mixed);
    for (std::size_t i = 0; i < width; ++i) result[i] = std::tanh(result[i] + in[i]);
    return result;
  }
  [[nodiscard]] int most_likely(const row& last) const {
    std::size_t best = 0;
    for (std::size_t word = 1; word < words; ++word)
      if (dot(tokens_[word], last) > dot(tokens_[best], last)) best = word;
    return static_cast<int>(best);
  }
  /// Takes one token through all layers, and returns the next one.
  int next(int token, kv_cache& cache) const {
    row at = embed(token);
    for (std::size_t l = 0; l < layers; ++l) at = step(l, at, cache[l]);
    return most_likely(at);
  }

  /// What one process would answer: the reference.
  [[nodiscard]] std::vector<int> generate(const std::vector<int>& prompt,
                                          std::size_t count) const {
    kv_cache cache;
    int token = 0;
    for (const int each : prompt) token = next(each, cache);
    std::vector<int> told;
    for (; told.size() < count; token = next(token, cache)) told.push_back(token);
    return told;
  }

 private:
  using matrix = std::array<row, width>;
  struct layer {
    matrix query;
    matrix key;
    matrix value;
    matrix out;
  };

  static float dot(const row& a, const row& b) {
    float sum = 0;
    for (std::size_t i = 0; i < width; ++i) sum += a[i] * b[i];
    return sum;
  }
  static row times(const matrix& m, const row& in) {
    row result{};
    for (std::size_t i = 0; i < width; ++i) result[i] = dot(m[i], in);
    return result;
  }

  std::array<row, words> tokens_{};
  std::array<layer, layers> layers_{};
};

/// The prompt of a request.
inline std::vector<int> prompt_of(std::uint64_t request) {
  std::mt19937 draw(static_cast<std::uint32_t>(request));
  std::vector<int> prompt(8 + draw() % 8);
  for (int& each : prompt) each = static_cast<int>(draw() % words);
  return prompt;
}
