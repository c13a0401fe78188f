// Accept: a world of two with each peer that arrives.
#pragma once

#include <cstddef>
#include <memory>
#include <stop_token>
#include <utility>
#include <vector>

#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/serve/acceptor.hpp"
#include "manyworlds/serve/keep.hpp"
#include "manyworlds/world/runtime.hpp"
#include "manyworlds/world/world.hpp"

namespace manyworlds::inline v0 {

/// One peer, from its taking to the end of its world.
template <class Body>
task<void> serve_peer(std::unique_ptr<met_peer> peer, Body& body) {
  failure failed;
  try {
    co_await peer->form();
    co_await body(peer->met());
  } catch (const world_error& e) {
    if (!peer->is_of_it(e.failure())) throw;
    failed = e.failure();
  }
  co_await peer->part(std::move(failed));
}

/// Forms a world of two with everybody who connects to the service (`connect`) and runs
/// `body(world&)` in it, for all of them side by side; here is rank 0, the peer is
/// rank 1. Nobody assigns names, ranks or ports: peers and acceptors may come, go and
/// come again in any order. Several acceptors of one service share those who come, each
/// of whom is taken by one.
///
/// A failure of its *own* world ends that body and nothing else: the world is over then
/// (one that is up although an operation failed is broken), and the peer may connect
/// again. Everything else that a body throws passes: the other bodies are cancelled, and
/// their worlds break. A body that returns leaves its world. `body` is kept by value and
/// called once for each peer.
///
/// The runtime and the store must outlive it.
///
/// A world of these is not formed again by `reform()`: the peer connects again.
///
/// Ends when the runtime stops, or a stop is requested of `until`: nobody is taken any
/// more, and the bodies that run are awaited. A store that does not answer is waited for,
/// and disturbs no world. Lives on the runtime's reactor; wrong options are world_error
/// (`invalid_argument`).
template <world_body Body>
task<void> accept(runtime& rt, store& st, accept_options options, Body body,
                  std::stop_token until = {}) {
  acceptor door(rt, st, options);
  auto take_all = [&](scope& peers) -> task<void> {
    for (;;) {
      std::vector<waiting_peer> taken = co_await door.next(until);
      if (taken.empty()) co_return;
      for (waiting_peer& each : taken)
        peers.spawn(serve_peer(door.meet(std::move(each)), body));
    }
  };
  co_await scope::run(take_all);
  co_await door.close();
}

}  // namespace manyworlds::inline v0
