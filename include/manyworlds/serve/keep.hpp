// Keep: a supervised world. Formed, used, and formed again when it breaks.
#pragma once

#include <chrono>
#include <concepts>
#include <utility>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/world/outcome.hpp"
#include "manyworlds/world/runtime.hpp"
#include "manyworlds/world/world.hpp"

namespace manyworlds::inline v0 {

/// What `keep` does when its body fails because a member, or all, have left in order. It
/// leaves itself then.
enum class after_close : unsigned char {
  end,         ///< the edge is over
  form_again,  ///< wait for whoever comes next under that name
};

/// Waits between two tries: 50 ms at first, twice as long each time up to 5 s, each with
/// up to half of it more at random, so that the members of a world do not try in step.
/// Starts again at 50 ms once a world was up for 5 s, its forming not counted.
class back_off {
 public:
  explicit back_off(runtime_core& rt) noexcept : runtime_(rt) {}

  [[nodiscard]] duration next() noexcept;
  void was_up_for(duration span) noexcept;

 private:
  static constexpr duration shortest = std::chrono::milliseconds(50);
  static constexpr duration longest = std::chrono::seconds(5);
  runtime_core& runtime_;
  duration pause_ = shortest;
};

/// Whether another try can help: not for wrong options or versions, nor for a secret that
/// rank 0 refuses; for one that somebody else was refused for, it can.
[[nodiscard]] bool is_worth_another_try(const failure& f) noexcept;

/// How `keep` comes by a world, each time.
class kept_rendezvous {
 public:
  kept_rendezvous(runtime& rt, store& st, const world_options& options) noexcept
      : runtime_(rt), store_(st), options_(options) {}

  [[nodiscard]] world describe() { return world(runtime_, store_, options_); }
  [[nodiscard]] static task<void> form(world& w) { co_await w; }

 private:
  runtime& runtime_;
  store& store_;
  const world_options options_;
};

/// What `keep` and `connect` do with a body; `way` describes and forms its worlds.
template <class Way, class Body>
task<void> supervise(runtime& rt, Way& way, Body& body, after_close closing) {
  back_off pause(rt.core());
  for (;;) {
    world w = way.describe();
    failure failed;
    try {
      co_await way.form(w);
      co_await body(w);
    } catch (const world_error& e) {
      if (e.failure().world_instance != w.core()->instance()) throw;
      failed = e.failure();
    }
    if (!failed) {
      // That it breaks meanwhile changes nothing: the body has returned.
      (void)co_await outcome(w.leave());
      co_return;
    }
    pause.was_up_for(w.history().up_for);
    const failure first = w.state() == world_state::broken ? w.failure() : failed;
    if (first.cause == cause::closed) {
      // One of several has left: those that are still there see us leave, not break.
      if (w.state() == world_state::up) (void)co_await outcome(w.leave());
      if (closing == after_close::end) co_return;
    } else if (w.state() != world_state::broken || !is_worth_another_try(first)) {
      // An operation failed and the world did not: that is the body's business.
      throw world_error(first);
    }
    if (rt.is_stopping()) co_return;
    // Its buffers and sockets are free before the next epoch takes their like.
    w = world();
    co_await sleep_for(pause.next());
  }
}

/// What is done in a world: a function of it that gives a task.
template <class Body>
concept world_body = std::invocable<Body&, world&>;

/// Forms the world and runs `body(world&)`. Returning leaves the world and ends `keep`,
/// also if the world breaks meanwhile (await sends `delivered` that matter); before, a
/// failure of *this* world is absorbed: back off, next epoch, run again. Everything else
/// that `body` throws passes (the world breaks then), and so does a failure that no
/// further try can mend. `body` is kept by value. Lives on the runtime's reactor; ends
/// early when the runtime stops.
template <world_body Body>
task<void> keep(runtime& rt, store& st, world_options options, Body body,
                after_close closing = after_close::end) {
  kept_rendezvous way(rt, st, options);
  co_await supervise(rt, way, body, closing);
}

}  // namespace manyworlds::inline v0
