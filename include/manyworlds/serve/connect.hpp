// Connect: a supervised world of two with an acceptor of a service.
#pragma once

#include <memory>
#include <utility>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/detail/body.hpp"
#include "manyworlds/detail/kept_body.hpp"
#include "manyworlds/inline_text.hpp"
#include "manyworlds/serve/keep.hpp"
#include "manyworlds/world/runtime.hpp"
#include "manyworlds/world/world.hpp"

namespace manyworlds::inline v0 {

/// Describes what to connect to. Trivially destructible, so that it can be written in
/// an awaited expression.
struct connect_options {
  /// The name that acceptors use.
  service_name service = {};
  /// Options of the world, without name, rank and size: `connect` sets these.
  world_options world = {};
};

namespace detail {

task<void> run_connect(runtime& rt, store& st, connect_options options,
                       std::unique_ptr<kept_body> body, after_close closing);

}  // namespace detail

/// Forms a world of two with an acceptor of the service (`accept`), whichever takes it,
/// and runs `body(world&)` in it. This process is rank 1, the acceptor is rank 0.
/// Everything else is as with `keep`, the exceptions of `body` included. When the world
/// breaks it backs off, connects again, perhaps to another acceptor, and runs `body`
/// again (`reform()` would find no acceptor).
///
/// It waits until an acceptor takes it. An acceptor that takes it and dies, or does not
/// get to it, costs 0.3 s, and twice as long each further time, up to 5 s. So does one of
/// another secret or version, which refuses it. Another acceptor may not refuse, so it
/// goes on waiting and warns in the log.
///
/// Lifetime: the runtime and the store must outlive it. Errors: those of `keep`.
template <class Body>
detail::task_keeping<Body> connect(runtime& rt, store& st, connect_options options,
                                   Body&& body, after_close closing = after_close::end) {
  return detail::task_keeping<Body>(detail::run_connect(
      rt, st, options, detail::keep_body(std::forward<Body>(body)), closing));
}

}  // namespace manyworlds::inline v0
