// Built-in names: what every worker can be asked to do with tensors.
#pragma once

#include "manyworlds/memory/tensor.hpp"
#include "manyworlds/spmd/remote_function.hpp"

namespace manyworlds::inline v0::detail {

/// Keeps a tensor in a register.
inline constexpr remote_function<tensor(tensor)> put_function{"mw.put", alone};
/// Makes a tensor of zeros.
inline constexpr remote_function<tensor(shape, dtype)> empty_function{"mw.empty", alone};
/// Gives a copy of a register's tensor.
inline constexpr remote_function<tensor(const tensor&)> copy_function{"mw.copy", alone};

}  // namespace manyworlds::inline v0::detail
