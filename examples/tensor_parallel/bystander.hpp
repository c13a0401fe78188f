// Bystander: a second session that decodes all the while, and may notice nothing.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <manyworlds/mw.hpp>
#include <manyworlds/spmd.hpp>
#include <string>

#include "generator.hpp"
#include "reference.hpp"

/// Decodes the reference's tokens over and over on workers of its own.
class bystander {
 public:
  bystander(const mw::session& s, const model_config& of) : model_(s, of, 1) {}

  mw::task<void> run(const reference& expected, const std::string& path,
                     const bool& is_over) {
    co_await model_.prepare(path);
    mw::time_point before = std::chrono::steady_clock::now();
    std::size_t i = 0;
    while (!is_over) {
      if (i == 0) model_.restart();
      try {
        const mw::tensor logits = co_await model_.step(expected.before(i));
        wrong_ += expected.agrees(i, logits) ? 0 : 1;
      } catch (const mw::call_error& e) {
        error_ = e.what();
        co_return;
      }
      const mw::time_point now = std::chrono::steady_clock::now();
      if (steps_++ != 0) longest_gap_ = std::max(longest_gap_, now - before);
      before = now;
      i = (i + 1) % expected.steps();
      co_await mw::sleep_for(std::chrono::milliseconds(2));
    }
  }

  [[nodiscard]] int steps() const noexcept { return steps_; }
  [[nodiscard]] int wrong() const noexcept { return wrong_; }
  /// Returns the longest time between two steps.
  [[nodiscard]] mw::duration longest_gap() const noexcept { return longest_gap_; }
  /// Returns why a step has failed; empty if none has.
  [[nodiscard]] const std::string& error() const noexcept { return error_; }

 private:
  generator model_;
  int steps_ = 0;
  int wrong_ = 0;
  mw::duration longest_gap_{};
  std::string error_;
};
