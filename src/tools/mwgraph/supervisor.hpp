// Supervisor: a job on this machine, with its store, its master and an agent.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "manyworlds/mpmd/job_graph.hpp"
#include "mwgraph/job_folder.hpp"

namespace mwgraph {

struct supervisor_options {
  std::string devices;
  std::string logs;
  std::size_t nodes = 1;  ///< agents, the own one included
  std::string listen = "127.0.0.1:0";
  bool prints_events = true;
  /// Called once the job can be found.
  std::function<void()> is_there;
};

/// Hosts the job's meeting store, starts its master, and again whenever that ends before
/// the job does, and an agent. It decides nothing, and holds nothing that a decision
/// needs but the store, by which they find each other. Returns the job's exit code.
/// SIGTERM and SIGINT end the job in order, a second one at once.
[[nodiscard]] int supervise(const manyworlds::job_graph& graph, const job_folder& folder,
                            const supervisor_options& options);

}  // namespace mwgraph
