// Job watch: reads what a job's master tells of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "manyworlds/coro/task.hpp"
#include "mwgraph/job_line.hpp"

namespace mwgraph {

/// Returns how the job stands, or nothing before a master has told. Errors: store_error.
[[nodiscard]] manyworlds::task<std::optional<nlohmann::json>> status_of(
    const status_source& source);

/// Gives each event once, over the masters of all terms.
class event_reader {
 public:
  /// Returns those that are new since the last call, for people.
  [[nodiscard]] std::vector<std::string> news(const nlohmann::json& status);

 private:
  std::size_t seen_ = 0;
};

/// Returns the list of that name; an empty one where none was told. Lifetime: the
/// status's.
[[nodiscard]] const nlohmann::json& list_in(const nlohmann::json& status,
                                            const char* name);
/// Returns whether the job is over.
[[nodiscard]] bool is_over(const nlohmann::json& status);
/// Returns the table that `status` prints.
[[nodiscard]] std::string table_of(const nlohmann::json& status);

}  // namespace mwgraph
