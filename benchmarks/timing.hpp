// Timing: stamps of one clock for all processes of a machine, and what samples amount to.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace mwbench {

/// Nanoseconds of CLOCK_MONOTONIC: comparable between the processes of one machine.
[[nodiscard]] inline std::int64_t now_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

[[nodiscard]] inline double us_since(std::int64_t begin) noexcept {
  return static_cast<double>(now_ns() - begin) / 1e3;
}
[[nodiscard]] inline double ms_since(std::int64_t begin) noexcept {
  return static_cast<double>(now_ns() - begin) / 1e6;
}

/// Three significant places, which is more than a shared machine repeats.
[[nodiscard]] inline double rounded(double value) noexcept {
  if (value == 0 || !std::isfinite(value)) return 0;
  const double scale = std::pow(10.0, 2 - std::floor(std::log10(std::abs(value))));
  return std::round(value * scale) / scale;
}

class samples {
 public:
  void add(double value) { values_.push_back(value); }
  void add_all(const samples& others) {
    values_.insert(values_.end(), others.values_.begin(), others.values_.end());
  }
  [[nodiscard]] bool empty() const noexcept { return values_.empty(); }
  [[nodiscard]] std::size_t count() const noexcept { return values_.size(); }

  /// The nearest rank: a value that was measured, never one between two. 0 of none.
  [[nodiscard]] double quantile(double part) const {
    if (values_.empty()) return 0;
    std::vector<double> sorted = values_;
    const auto last = static_cast<double>(sorted.size() - 1);
    const auto at = static_cast<std::ptrdiff_t>(std::ceil(part * last));
    std::nth_element(sorted.begin(), sorted.begin() + at, sorted.end());
    return rounded(sorted[static_cast<std::size_t>(at)]);
  }
  [[nodiscard]] double mean() const {
    double sum = 0;
    for (const double value : values_) sum += value;
    return values_.empty() ? 0 : sum / static_cast<double>(values_.size());
  }
  [[nodiscard]] double median() const { return quantile(0.5); }
  [[nodiscard]] double p99() const { return quantile(0.99); }
  [[nodiscard]] double largest() const { return quantile(1); }
  /// How far the middle half of them reaches, in parts of the median.
  [[nodiscard]] double spread() const {
    const double middle = median();
    return middle == 0 ? 0 : rounded((quantile(0.75) - quantile(0.25)) / middle);
  }

 private:
  std::vector<double> values_;
};

}  // namespace mwbench
