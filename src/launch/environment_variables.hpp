// Environment variables: what this process was given (law 12).
#pragma once

#include "manyworlds/launch/launch_context.hpp"

namespace manyworlds::inline v0::detail {

/// Reads the environment of this process. Only the contexts do, in main, before other
/// threads start.
[[nodiscard]] launch_variables variables_of_this_process();

}  // namespace manyworlds::inline v0::detail
