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
  report(bool as_json, std::string_view transport, std::string plot = {}) noexcept;
  report(const report&) = delete;
  report& operator=(const report&) = delete;
  ~report() { erase_progress(); }
  /// What was asked for.
  [[nodiscard]] std::string_view transport() const noexcept { return transport_; }

  /// What was measured on: first, once. `more` is what only some benchmarks ask for.
  void machine(std::string_view engine, const fields& more = fields::object());
  /// People see the names above the first row, and again when they change.
  void row(const fields& values);
  /// What is being measured: one line on a terminal, gone with the next row.
  void progress(std::string_view text);
  /// After the last row: draws the curves that were asked for. Throws std::runtime_error
  /// if the column `wrong` of any row counts something.
  void end();

 private:
  void erase_progress();

  const bool as_json_;
  const std::string_view transport_;
  const std::string plot_;
  const bool shows_progress_;
  bool has_progress_ = false;
  std::vector<std::string> columns_;
  std::vector<fields> rows_;
};

}  // namespace mwbench
