// sync_wait: runs a task from a plain function.
#pragma once

#include <stdexcept>
#include <utility>

#include "manyworlds/detail/body.hpp"
#include "manyworlds/detail/branch.hpp"
#include "manyworlds/detail/local_executor.hpp"

namespace manyworlds::inline v0 {

/// Runs an awaitable on the calling thread until it has ended, and returns its value.
///
/// Errors: what it threw; std::logic_error within a task, since it blocks the thread;
/// std::invalid_argument for an empty task.
template <class Awaitable>
decltype(auto) sync_wait(Awaitable&& awaitable) {
  if (executor::current()) {
    throw std::logic_error(
        "sync_wait inside a task would block the thread that all tasks here run on: "
        "co_await it instead");
  }
  detail::local_executor home;
  if constexpr (detail::keeps_closure<Awaitable>) {
    return home.run(detail::take_task(std::move(awaitable)));
  } else {
    return home.run(detail::as_task(std::forward<Awaitable>(awaitable)));
  }
}

}  // namespace manyworlds::inline v0
