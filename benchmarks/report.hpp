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
  explicit report(bool as_json) noexcept : as_json_(as_json) {}

  /// What was measured on: first, once.
  void machine(std::string_view engine);
  /// People see the names above the first row, and again when they change.
  void row(const fields& values);

 private:
  const bool as_json_;
  std::vector<std::string> columns_;
};

}  // namespace mwbench
