// Report: one row a measurement, as a table for people or as one JSON object a line.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace mwbench {

using fields = nlohmann::ordered_json;

class report {
 public:
  report(bool as_json, std::string_view transport) noexcept
      : as_json_(as_json), transport_(transport) {}
  /// What was asked for.
  [[nodiscard]] std::string_view transport() const noexcept { return transport_; }

  /// What was measured on: first, once. `more` is what only some benchmarks ask for.
  void machine(std::string_view engine, const fields& more = fields::object());
  /// People see the names above the first row, and again when they change.
  void row(const fields& values);

 private:
  const bool as_json_;
  const std::string_view transport_;
  std::vector<std::string> columns_;
};

}  // namespace mwbench
