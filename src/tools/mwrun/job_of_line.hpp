// The job that a command line asks for.
#pragma once

#include "manyworlds/launch/launch_agent.hpp"
#include "mwrun/command_line.hpp"

namespace mwrun {

/// Returns the job. `inherited` are the variables of this process. Errors: usage_error
/// for what this machine has not, or mwrun does not do yet.
[[nodiscard]] mw::launch_options job_of(const command_line& line,
                                        mw::launch_variables inherited);

/// Prints the commands and the variables of all workers as JSON.
void print_plan(const mw::launch_options& job);

}  // namespace mwrun
