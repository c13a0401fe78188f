// Current reactor: the one whose turn the calling thread is in.
#pragma once

#include "manyworlds/io/reactor.hpp"

namespace manyworlds::inline v0 {

/// Null outside a reactor's turn, and where another executor runs inside it. For what
/// needs the engine of a task's home and is not told which reactor that is.
[[nodiscard]] reactor* current_reactor() noexcept;

}  // namespace manyworlds::inline v0
