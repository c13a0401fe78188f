// Reference: what one process computes with the whole model.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <manyworlds/mw.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "decoder.hpp"

/// Returns the token with the largest logit.
inline int best_of(const mw::tensor& logits) {
  const std::span<const float> all = logits.as<float>();
  return static_cast<int>(std::ranges::max_element(all) - all.begin());
}

/// The tokens that a prompt leads to, and the logits of each.
class reference {
 public:
  /// Sums are added up in another order by each number of workers: logits agree this far.
  static constexpr float tolerance = 1e-4f;

  /// Computes it. Errors: std::runtime_error if the two best tokens of a step are too
  /// near to each other to decide between them.
  static mw::task<reference> make(const model_config& of, const std::string& path,
                                  std::vector<int> prompt, int tokens) {
    const part whole = co_await read_part(of, path, {}, nullptr);
    kv_cache cache = empty_cache(whole);
    reference made;
    made.prompt_ = prompt.size();
    made.tokens_ = std::move(prompt);
    int cached = 0;
    for (int i = 0; i < tokens; ++i) {
      const std::vector<int> fed(made.tokens_.begin() + cached, made.tokens_.end());
      mw::tensor x = co_await embed(whole, fed);
      cached = static_cast<int>(made.tokens_.size());
      const int at = cached - static_cast<int>(x.shape()[0]);
      mw::tensor logits = co_await run_part(whole, cache, std::move(x), at, nullptr);
      made.tokens_.push_back(best_of(logits));
      made.check_margin(logits);
      made.logits_.push_back(std::move(logits));
    }
    co_return made;
  }

  /// Returns the tokens before step number `i`, the first of which is 0.
  [[nodiscard]] std::span<const int> before(std::size_t i) const {
    return std::span(tokens_).first(prompt_ + i);
  }
  [[nodiscard]] std::size_t steps() const noexcept { return logits_.size(); }
  /// Returns whether these are the logits of that step, and so its token.
  [[nodiscard]] bool agrees(std::size_t i, const mw::tensor& logits) const {
    const std::span<const float> mine = logits_[i].as<float>();
    const std::span<const float> theirs = logits.as<float>();
    const auto is_near = [](float a, float b) { return std::abs(a - b) <= tolerance; };
    return std::ranges::equal(mine, theirs, is_near) &&
           best_of(logits) == tokens_[prompt_ + i];
  }

 private:
  void check_margin(const mw::tensor& logits) const {
    const std::span<const float> all = logits.as<float>();
    std::vector<float> sorted(all.begin(), all.end());
    std::ranges::nth_element(sorted, sorted.begin() + 1, std::greater<>());
    if (sorted[0] - sorted[1] > 2 * tolerance) return;
    throw std::runtime_error(
        fmt::format("this seed leaves it to rounding which token comes behind {} others: "
                    "take another",
                    tokens_.size()));
  }

  std::size_t prompt_ = 0;
  std::vector<int> tokens_;
  std::vector<mw::tensor> logits_;
};
