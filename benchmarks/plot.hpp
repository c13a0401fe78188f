// Plot: curves of rows of results, as an SVG.
#pragma once

#include <string>
#include <vector>

#include "report.hpp"

namespace mwbench {

/// Draws what grows with a size, with worlds or with members, on logarithmic axes, beside
/// the raw limits and the peers the rows tell of. Rows without curves are passed over.
/// Throws std::runtime_error if that is all of them, or the file cannot be written.
void plot(const std::vector<fields>& rows, const std::string& file);
/// The rows of files with one JSON object a line, as `--json` and peers/compare.py write.
[[nodiscard]] std::vector<fields> rows_of_files(const std::vector<std::string>& files);

}  // namespace mwbench
