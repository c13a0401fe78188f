// Keep: a supervised world. It is formed, used, and formed again when it breaks.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "manyworlds/coro/body.hpp"
#include "manyworlds/coro/giving_up.hpp"
#include "manyworlds/coro/stop.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/world/outcome.hpp"
#include "manyworlds/world/runtime.hpp"
#include "manyworlds/world/world.hpp"

namespace manyworlds::inline v0 {

/// Chooses what `keep` does when its body fails because a member, or all, have left in
/// order. It leaves the world itself then.
enum class after_close : unsigned char {
  end,         ///< the edge is over
  form_again,  ///< wait for the next members under that name
};

/// Computes the waits between two tries: 50 ms at first, twice as long each time up to
/// 5 s. Each is up to half longer at random, so that the members of a world do not try
/// in step. Starts again at 50 ms once a world was up for 5 s; its forming does not
/// count.
class back_off {
 public:
  explicit back_off(runtime_core& rt) noexcept : runtime_(rt) {}

  [[nodiscard]] duration next() noexcept;
  void was_up_for(duration span) noexcept;

 private:
  static constexpr duration shortest = std::chrono::milliseconds(50);
  static constexpr duration longest = std::chrono::seconds(5);
  static_assert(shortest < longest);
  runtime_core& runtime_;
  duration pause_ = shortest;
};

/// Returns whether another try can help. It cannot for wrong options or versions, nor
/// for a secret that rank 0 refuses. It can if another member was refused for its
/// secret.
[[nodiscard]] bool is_worth_another_try(const failure& f) noexcept;

/// Logs a warning: the world was not formed, why, and when the next try is made. `keep`
/// and `connect` absorb that failure.
void tell_not_formed(const runtime_core& rt, const failure& why, duration next_try);

/// Describes and forms the worlds of `keep`.
class kept_rendezvous {
 public:
  static constexpr std::string_view name = "keep";

  kept_rendezvous(runtime& rt, store& st, const world_options& options) noexcept
      : runtime_(rt), store_(st), options_(options) {}

  [[nodiscard]] world describe() { return world(runtime_, store_, options_); }
  [[nodiscard]] static task<void> form(world& w) { co_await w; }

 private:
  runtime& runtime_;
  store& store_;
  const world_options options_;
};

/// Forms the world. Returns false if the runtime begins to stop before it is formed:
/// then nothing waits for it any longer.
template <class Way>
task<bool> form_unless_stopping(runtime& rt, Way& way, world& w) {
  try {
    co_await stop_on(way.form(w), rt.draining());
  } catch (const stopped&) {
    co_return false;
  }
  co_return true;
}

/// Pauses. Returns false if the runtime begins to stop meanwhile.
[[nodiscard]] task<bool> pause_unless_stopping(runtime& rt, duration pause);

/// Returns what the exception that is being handled says. Precondition: one is.
[[nodiscard]] std::string handled_exception_text();

/// Notes that a body ended by an exception that is no failure of its world. Counts it,
/// logs it as an error with the world's name and the text, and breaks the world with
/// that text, which the peers are told. Thread: the runtime's reactor.
void note_body_threw(runtime_core& rt, world& w, std::string_view caller,
                     std::string_view text);

/// Runs a body in one world after the other, as `keep` and `connect` do. `way`
/// describes and forms the worlds.
template <class Way, class Body>
task<void> supervise(runtime& rt, Way& way, Body& body, after_close closing) {
  back_off pause(rt.core());
  for (;;) {
    world w = way.describe();
    failure failed;
    try {
      if (!co_await form_unless_stopping(rt, way, w)) co_return;
      // If it was formed as the runtime began to stop, nothing new is begun.
      if (!rt.is_stopping()) {
        task<void> running = body(w);
        co_await std::move(running);
      }
    } catch (const world_error& e) {
      if (!w || e.failure().world_instance != w.core()->instance()) {
        note_body_threw(rt.core(), w, Way::name, e.what());
        throw;
      }
      failed = e.failure();
    } catch (const stopped&) {
      // The body waited for new work until `runtime::draining`: this counts as a
      // return.
      if (!rt.is_stopping()) {
        note_body_threw(rt.core(), w, Way::name, handled_exception_text());
        throw;
      }
    } catch (...) {
      note_body_threw(rt.core(), w, Way::name, handled_exception_text());
      throw;
    }
    // If the body has moved its world away there is nothing to leave.
    if (!w) co_return;
    if (!failed) {
      // A break meanwhile changes nothing: the body has returned.
      (void)co_await outcome(w.leave());
      co_return;
    }
    pause.was_up_for(w.history().up_for);
    const failure first = w.state() == world_state::broken ? w.failure() : failed;
    if (first.cause == cause::closed) {
      // One of several members has left. Those that are still there see us leave, not
      // break.
      if (w.state() == world_state::up) (void)co_await outcome(w.leave());
      if (closing == after_close::end) co_return;
    } else if (w.state() != world_state::broken || !is_worth_another_try(first)) {
      // An operation failed and the world did not: the body has to handle it.
      if (w.state() != world_state::broken)
        note_body_threw(rt.core(), w, Way::name, first.text());
      throw world_error(first);
    }
    if (rt.is_stopping()) co_return;
    // Free its buffers and sockets before the next epoch allocates its own.
    w = world();
    const duration next_try = pause.next();
    if (first.epoch == 0) tell_not_formed(rt.core(), first, next_try);
    if (!co_await pause_unless_stopping(rt, next_try)) co_return;
  }
}

/// A function of a world that returns a task.
template <class Body>
concept world_body = std::is_invocable_r_v<task<void>, Body&, world&>;

/// Refuses what is no body, with one sentence for all functions that take a body.
template <class Body>
constexpr void check_body() noexcept {
  static_assert(world_body<Body>,
                "a body takes a mw::world& and gives a mw::task<void>: "
                "[&](mw::world& w) -> mw::task<void> {...}");
}

template <class Body>
task<void> run_keep(runtime& rt, store& st, world_options options, Body body,
                    after_close closing) {
  kept_rendezvous way(rt, st, options);
  co_await supervise(rt, way, body, closing);
}

/// Forms the world and runs `body(world&)`. When the body returns, `keep` leaves the
/// world and ends, also if the world breaks meanwhile: await sends `delivered` that
/// matter. Before that a failure of *this* world is absorbed: `keep` backs off, forms
/// the next epoch and runs `body` again. A failure that no further try can mend ends
/// it.
///
/// Every other exception of `body` ends `keep`, which rethrows it to its awaiter.
/// Before that it is logged as an error with the world's name, counted in `dump()`, and
/// the world breaks by it: the peers are told `broken_by_user` with the text. Siblings
/// in the same scope are cancelled, as by every child that throws; to go on, catch it
/// in `body`.
///
/// When the runtime stops, `keep` ends at once if it is forming a world or waits
/// between two tries. A body that runs may go on for the drain (`runtime::draining`
/// tells it), and is cancelled then. A body that ends by `stopped` while the runtime
/// stops has returned.
///
/// `body` is kept by value. A body that moves its world away owns it. Thread: the
/// runtime's reactor.
template <class Body>
[[nodiscard]] task_keeping<Body> keep(runtime& rt, store& st, world_options options,
                                      Body&& body,
                                      after_close closing = after_close::end) {
  check_body<std::decay_t<Body>>();
  return task_keeping<Body>(
      run_keep<std::decay_t<Body>>(rt, st, options, std::forward<Body>(body), closing));
}

}  // namespace manyworlds::inline v0
