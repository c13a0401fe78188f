// Keep: a supervised world. It is formed, used, and formed again when it breaks.
#pragma once

#include <memory>
#include <utility>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/detail/body.hpp"
#include "manyworlds/detail/kept_body.hpp"
#include "manyworlds/world/runtime.hpp"
#include "manyworlds/world/world.hpp"

namespace manyworlds::inline v0 {

/// Chooses what `keep` does when its body fails because a member, or all, have left in
/// order. It leaves the world itself then.
enum class after_close : unsigned char {
  end,         ///< the edge is over
  form_again,  ///< wait for the next members under that name
};

namespace detail {

task<void> run_keep(runtime& rt, store& st, world_options options,
                    std::unique_ptr<kept_body> body, after_close closing);

}  // namespace detail

/// Forms the world and runs `body(world&)`. When the body returns, `keep` leaves the
/// world and ends, also if the world breaks meanwhile: await sends `delivered` that
/// matter. Before that a failure of *this* world is absorbed: `keep` backs off, forms
/// the next epoch and runs `body` again, unless no further try can mend it.
///
/// Every other exception of `body` ends `keep`. Before that it is logged as an error with
/// the world's name, counted in `dump()`, and the world breaks by it: the peers are told
/// `broken_by_user` with the text. Siblings in the same scope are cancelled, as by every
/// child that throws; to go on, catch it in `body`.
///
/// When the runtime stops, `keep` ends at once if it is forming a world or waits
/// between two tries. A body that runs may go on for the drain (`runtime::draining`
/// tells it), and is cancelled then. A body that ends by `stopped` while the runtime
/// stops has returned.
///
/// `body` is kept by value. A body that moves its world away owns it. Thread: the
/// runtime's reactor. Lifetime: the runtime and the store must outlive it.
///
/// Errors:
/// - world_error with the causes of forming that stay: `invalid_argument`,
///   `size_disagrees`, `wrong_version`, `forked`; `wrong_secret` if rank 0 refuses.
/// - What `body` threw, except `closed` and failures of a world that broke. A failure of
///   one operation, such as `timed_out` or `size_mismatch`, is the body's to handle.
template <class Body>
detail::task_keeping<Body> keep(runtime& rt, store& st, world_options options,
                                Body&& body, after_close closing = after_close::end) {
  return detail::task_keeping<Body>(detail::run_keep(
      rt, st, options, detail::keep_body(std::forward<Body>(body)), closing));
}

}  // namespace manyworlds::inline v0
