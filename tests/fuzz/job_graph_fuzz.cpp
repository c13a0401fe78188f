// Descriptions of jobs: whatever the text, it is read or objected to, within its lines.
// What was read has nothing wrong with it, and reads back equal from both languages.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "input.hpp"
#include "manyworlds/mpmd/job_graph.hpp"
#include "mpmd/graph_picture.hpp"

using namespace manyworlds;

namespace {

void look_at(const job_graph& graph) {
  fuzzing::must(graph.check().empty());
  fuzzing::must(job_graph::from_toml(graph.to_toml()) == graph);
  fuzzing::must(job_graph::from_json(graph.to_json()) == graph);
  fuzzing::must(graph.start_order().size() == graph.roles().size());
  for (const graph_role& each : graph.roles()) {
    const auto region = graph.region_of(each.name);
    fuzzing::must(std::find(region.begin(), region.end(), each.name) != region.end());
  }
  fuzzing::must(!detail::dot_picture(graph).empty());
  fuzzing::must(!detail::mermaid_picture(graph).empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const bool is_json = text.starts_with('{');
  job_graph graph;
  try {
    graph = is_json ? job_graph::from_json(text) : job_graph::from_toml(text);
  } catch (const graph_error& e) {
    const auto lines = 1 + std::count(text.begin(), text.end(), '\n');
    fuzzing::must(!e.objections().empty());
    for (const graph_objection& each : e.objections()) {
      fuzzing::must(each.line >= 1 && each.line <= lines);
      fuzzing::must(each.column >= 1 && each.column <= size + 1);
      fuzzing::must(!each.what.empty());
    }
    return 0;
  }
  // Outside: an error of what follows is one of ours.
  look_at(graph);
  return 0;
}
