// sync_wait: from a plain function into a task and back.
#pragma once

#include <utility>

#include "manyworlds/coro/branch.hpp"
#include "manyworlds/coro/local_executor.hpp"

namespace manyworlds::inline v0 {

/// Runs an awaitable on the calling thread until it has ended; gives its value or throws
/// what it threw. Blocks: not from within a task.
template <class Awaitable>
decltype(auto) sync_wait(Awaitable&& awaitable) {
  local_executor home;
  return home.run(as_task(std::forward<Awaitable>(awaitable)));
}

}  // namespace manyworlds::inline v0
