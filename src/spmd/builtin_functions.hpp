// Built-in functions: the table of them, which every worker has beside its own.
#pragma once

#include "manyworlds/detail/builtin_names.hpp"
#include "manyworlds/spmd/function_table.hpp"

namespace manyworlds::inline v0::detail {

[[nodiscard]] const function_table& builtin_functions();

}  // namespace manyworlds::inline v0::detail
