// Current reactor: the reactor that runs a turn on the calling thread.
#pragma once

#include "io/reactor.hpp"

namespace manyworlds::inline v0::detail {

/// Returns the reactor that runs a turn on the calling thread. Null outside a turn, and
/// where another executor runs inside it. Code uses it that needs the engine of a task's
/// home and is not told which reactor that is.
[[nodiscard]] reactor* current_reactor() noexcept;

}  // namespace manyworlds::inline v0::detail
