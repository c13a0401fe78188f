#include <algorithm>

#include "manyworlds/mpmd/job_graph.hpp"

namespace manyworlds::inline v0 {

std::vector<std::string> job_graph::region_of(std::string_view role) const {
  std::vector<std::string_view> reached{role};
  const auto reach = [&](std::string_view name) {
    if (std::find(reached.begin(), reached.end(), name) == reached.end())
      reached.push_back(name);
  };
  for (std::size_t i = 0; i < reached.size(); ++i) {
    const std::string_view at = reached[i];
    for (const graph_edge& edge : edges_) {
      if (edge.on_loss != edge_loss::restart_together) continue;
      if (edge.from == at) reach(edge.to);
      if (edge.to == at) reach(edge.from);
    }
  }
  std::vector<std::string> region;
  for (const graph_role& each : roles_)
    if (std::find(reached.begin(), reached.end(), each.name) != reached.end())
      region.push_back(each.name);
  return region;
}

}  // namespace manyworlds::inline v0
