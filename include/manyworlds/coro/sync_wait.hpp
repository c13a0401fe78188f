// sync_wait: runs a task from a plain function.
#pragma once

#include <stdexcept>
#include <utility>

#include "manyworlds/detail/body.hpp"
#include "manyworlds/detail/branch.hpp"
#include "manyworlds/detail/local_executor.hpp"

namespace manyworlds::inline v0 {

/// Runs an awaitable on the calling thread until it has ended. Returns its value or
/// throws what it threw. It blocks the thread, so within a task it throws
/// std::logic_error.
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
