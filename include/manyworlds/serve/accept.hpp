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

/// Serves one peer, from the moment it is taken to the end of its world.
template <class Body>
task<void> serve_peer(std::unique_ptr<met_peer> peer, Body& body) {
  failure failed;
  try {
    co_await peer->form();
    task<void> running = body(peer->met());
    co_await std::move(running);
  } catch (const world_error& e) {
    failed = peer->is_of_it(e.failure()) ? e.failure() : peer->note_body_threw();
  } catch (const stopped&) {
    // The body waited for new work until `runtime::draining`: this counts as a return.
    if (!peer->is_runtime_stopping()) failed = peer->note_body_threw();
  } catch (...) {
    failed = peer->note_body_threw();
  }
  co_await peer->part(std::move(failed));
}

template <class Body>
task<void> run_accept(runtime& rt, store& st, accept_options options, Body body,
                      std::stop_token until) {
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
/// Errors: world_error (`invalid_argument`) for wrong options.
template <class Body>
[[nodiscard]] task_keeping<Body> accept(runtime& rt, store& st, accept_options options,
                                        Body&& body, std::stop_token until = {}) {
  check_body<std::decay_t<Body>>();
  return task_keeping<Body>(run_accept<std::decay_t<Body>>(
      rt, st, options, std::forward<Body>(body), std::move(until)));
}

}  // namespace manyworlds::inline v0
