// Meeting of a command line: where the nodes of a job meet, and how they reach this one.
#pragma once

#include "manyworlds/launch/launch_agent.hpp"
#include "manyworlds/world/runtime_options.hpp"
#include "mwrun/command_line.hpp"

namespace mwrun {

/// Sets the job's meeting and this node's address, and returns the options of a runtime
/// that the other nodes reach. A name is looked up for up to 10 s. Errors: usage_error.
[[nodiscard]] mw::runtime_options meet(const command_line& line, mw::launch_options& job);

}  // namespace mwrun
