// Session: what the workers of `mwbench session` are.
#pragma once

#include <manyworlds/mw.hpp>
#include <manyworlds/spmd.hpp>

namespace mwbench {

/// The functions of its workers, which are this program too.
[[nodiscard]] const mw::function_table& session_functions();

}  // namespace mwbench
