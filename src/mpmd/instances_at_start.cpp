#include "manyworlds/mpmd/job_placement.hpp"

namespace manyworlds::inline v0 {

std::vector<instance_id> instances_at_start(const job_graph& graph) {
  std::vector<instance_id> all;
  for (const std::string& name : graph.start_order()) {
    const graph_role* const role = graph.find_role(name);
    for (std::uint32_t i = 0; role != nullptr && i < role->counts.start; ++i)
      all.push_back({name, i});
  }
  return all;
}

}  // namespace manyworlds::inline v0
