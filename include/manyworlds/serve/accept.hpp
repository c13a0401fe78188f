// Accept: a world of two with each peer that arrives.
#pragma once

#include <cstddef>
#include <memory>
#include <stop_token>
#include <utility>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/detail/body.hpp"
#include "manyworlds/detail/kept_body.hpp"
#include "manyworlds/inline_text.hpp"
#include "manyworlds/world/runtime.hpp"
#include "manyworlds/world/world.hpp"

namespace manyworlds::inline v0 {

/// Describes what to accept. Trivially destructible, so that it can be written in an
/// awaited expression.
struct accept_options {
  /// The name that connectors use.
  service_name service = {};
  /// Limits the worlds at a time. A peer beyond it waits, or is taken by another
  /// acceptor.
  std::size_t most = 1024;
  /// Options of each world, without name, rank and size: `accept` sets these.
  world_options world = {};
};

namespace detail {

task<void> run_accept(runtime& rt, store& st, accept_options options,
                      std::unique_ptr<kept_body> body, std::stop_token until);

}  // namespace detail

/// Forms a world of two with each peer that connects to the service (`connect`) and
/// runs `body(world&)` in it. The bodies run side by side. This process is rank 0, the
/// peer is rank 1. Names, ranks and ports are not assigned: peers and acceptors may
/// come, go and return in any order. Several acceptors of one service share its peers;
/// each peer is taken by one acceptor.
///
/// A failure of its *own* world ends that body and nothing else. The world is over then
/// (one that is up although an operation failed is broken), and the peer may connect
/// again. Every other exception of a body ends its own world too, and neither `accept`
/// nor the other bodies. It is logged as an error with the world's name and the text
/// and counted in `dump()`; the peer is told `broken_by_user` with the text. A body
/// that returns leaves its world. `body` is kept by value and called once for each
/// peer.
///
/// `reform()` does not form these worlds again: the peer connects again.
///
/// Ends when the runtime stops or a stop is requested of `until`: no further peer is
/// taken, and the bodies that run are awaited. A store that does not answer is waited
/// for and disturbs no world.
///
/// Thread: the runtime's reactor. Lifetime: the runtime and the store must outlive it.
/// Errors: world_error (`invalid_argument`) for wrong options. An error of a body, of a
/// world or of the store does not end it.
template <class Body>
detail::task_keeping<Body> accept(runtime& rt, store& st, accept_options options,
                                  Body&& body, std::stop_token until = {}) {
  return detail::task_keeping<Body>(detail::run_accept(
      rt, st, options, detail::keep_body(std::forward<Body>(body)), std::move(until)));
}

}  // namespace manyworlds::inline v0
