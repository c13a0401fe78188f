#include "manyworlds/mpmd/graph_error.hpp"

#include <fmt/format.h>

#include "mpmd/spoken_text.hpp"

namespace manyworlds::inline v0 {

std::string graph_objection::text() const {
  if (source.empty()) return what;
  return line == 0 ? fmt::format("{}: {}", source, what)
                   : fmt::format("{}:{}:{}: {}", source, line, column, what);
}

graph_error::graph_error(std::vector<graph_objection> objections)
    : objections_(std::move(objections)) {
  for (const graph_objection& each : objections_) {
    if (!text_.empty()) text_ += '\n';
    text_ += each.text();
  }
}

namespace detail {

graph_objection graph_positions::object(std::string field, std::string what) const {
  graph_objection made{source_, 0, 0, std::move(field), std::move(what)};
  for (std::string_view path = made.field;; path = parent_path(path)) {
    if (const auto found = where_.find(path); found != where_.end()) {
      made.line = found->second.line;
      made.column = found->second.column;
      break;
    }
    if (path.empty()) break;
  }
  return made;
}

}  // namespace detail

}  // namespace manyworlds::inline v0
