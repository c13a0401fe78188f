// Supervision: a body is run in one world after the other, as `keep` and `connect` do.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "exception_text.hpp"
#include "manyworlds/coro/giving_up.hpp"
#include "manyworlds/coro/stop.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/serve/keep.hpp"
#include "manyworlds/world/outcome.hpp"
#include "manyworlds/world/runtime.hpp"
#include "manyworlds/world/world.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

/// Computes the waits between two tries: 50 ms at first, twice as long each time up to
/// 5 s. Each is up to half longer at random, so that the members of a world do not try
/// in step. Starts again at 50 ms once a world was up for 1 s; its forming does not
/// count. So what breaks as it forms is tried less and less often, while a member that is
/// killed every few seconds, and replaced, is not waited for longer each time.
class back_off {
 public:
  explicit back_off(runtime_core& rt) noexcept : runtime_(rt) {}

  [[nodiscard]] duration next() noexcept;
  void was_up_for(duration span) noexcept;

 private:
  static constexpr duration shortest = std::chrono::milliseconds(50);
  static constexpr duration longest = std::chrono::seconds(5);
  static constexpr duration steady = std::chrono::seconds(1);
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

/// Notes that a body ended by an exception that is no failure of its world. Counts it,
/// logs it as an error with the world's name and the text, and breaks the world with
/// that text, which the peers are told. Thread: the runtime's reactor.
void note_body_threw(runtime_core& rt, world& w, std::string_view caller,
                     std::string_view text);

/// Runs a body in one world after the other, as `keep` and `connect` do. `way`
/// describes and forms the worlds.
template <class Way>
task<void> supervise(runtime& rt, Way& way, kept_body& body, after_close closing) {
  back_off pause(access::core(rt));
  for (;;) {
    world w = way.describe();
    failure failed;
    try {
      if (!co_await form_unless_stopping(rt, way, w)) co_return;
      // If it was formed as the runtime began to stop, nothing new is begun.
      if (!rt.is_stopping()) {
        co_await body.run_in(w);
      }
    } catch (const world_error& e) {
      if (!w || e.failure().world_instance != access::core(w).instance()) {
        note_body_threw(access::core(rt), w, Way::name, e.what());
        throw;
      }
      failed = e.failure();
    } catch (const stopped&) {
      // The body waited for new work until `runtime::draining`: this counts as a
      // return.
      if (!rt.is_stopping()) {
        note_body_threw(access::core(rt), w, Way::name, handled_exception_text());
        throw;
      }
    } catch (...) {
      note_body_threw(access::core(rt), w, Way::name, handled_exception_text());
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
        note_body_threw(access::core(rt), w, Way::name, first.text());
      throw world_error(first);
    }
    if (rt.is_stopping()) co_return;
    // Free its buffers and sockets before the next epoch allocates its own.
    w = world();
    const duration next_try = pause.next();
    if (first.epoch == 0) tell_not_formed(access::core(rt), first, next_try);
    if (!co_await pause_unless_stopping(rt, next_try)) co_return;
  }
}

}  // namespace manyworlds::inline v0::detail
