// How a runtime ends: its tasks, then its worlds, then its service. Each step is
// bounded; what does not end is named in the log and left behind.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <thread>

#include "duration_text.hpp"
#include "manyworlds/world/runtime.hpp"
#include "observe/dump_server.hpp"
#include "world/runtime_core.hpp"
#include "world/runtime_roots.hpp"
#include "world/runtime_thread.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace {

using namespace std::chrono_literals;

/// Cancelled tasks have this long to end while their worlds are up: a transfer that is
/// given up settles within a second.
constexpr duration settling_patience = 2s;
/// Cancelled tasks have this long to end at all.
constexpr duration task_patience = 10s;
/// The service has this long to say goodbye to the peers.
constexpr duration goodbye_patience = 500ms;
/// Broken worlds have this long to release their last buffers.
constexpr duration drain_patience = 10s;
/// Broken worlds have this long if tasks that do not end may hold their buffers.
constexpr duration short_patience = 1s;
/// Stores that were hosted here have this long to end their connections.
constexpr duration store_patience = 20s;
/// A thread has this long to return from its last turn.
constexpr duration thread_patience = 10s;
static_assert(settling_patience < task_patience && short_patience < drain_patience);
/// Where time stands still, as in a simulation that is no longer driven, turns are
/// counted in place of time.
constexpr int most_turns_without_time = 100'000;
/// An end is rare and nothing waits for this thread: it polls.
constexpr duration poll_interval = 200us;

}  // namespace

/// Returns whether the calling thread is inside a turn: no task can end before it
/// returns.
bool runtime::is_in_a_turn() const noexcept {
  return core_->user().is_current() || core_->service().is_current();
}

/// Returns whether another thread turns the user's reactor: the runtime's own, or one
/// inside `run`.
bool runtime::turns_elsewhere() const noexcept {
  return reactor_thread_ || turning_ == turning::a_caller;
}

/// Turns the reactors that no other thread turns, until `over()` or the time is up. In
/// a simulation, which does not drive them now, these are both. True if it is over.
template <class Over>
bool runtime::turn_until(bool users, time_point by, Over&& over) noexcept {
  const bool time_passes = core_->env().starts_threads();
  for (int turns = 0; !over(); ++turns) {
    if (time_passes ? core_->service().now() >= by : turns == most_turns_without_time)
      return false;
    bool did = false;
    if (users && !turns_elsewhere()) did |= core_->user().turn();
    if (!time_passes) did |= core_->service().turn();
    if (!did && time_passes) std::this_thread::sleep_for(poll_interval);
  }
  return true;
}

void runtime::end() noexcept {
  dump_server_ = nullptr;
  if (core_->is_forked_child()) return end_in_forked_child();
  if (is_in_a_turn()) return end_within_a_turn();
  stop();
  take_to_end();
  const bool tasks_ended = end_tasks();
  if (!tasks_ended) tell_of_what_runs("is destroyed, but this does not end");
  break_worlds(true);
  drain_worlds(tasks_ended ? drain_patience : short_patience);
  const bool thread_ended = end_reactor_thread();
  const bool service_ended = end_service();
  if (thread_ended) {
    roots_->tell_errors();
    if (tasks_ended) core_->end_devices();
    core_->note_end();
    // After that, so that what was posted since the last turn finds its world over.
    core_->user().close();
  }
  if (!tasks_ended || !thread_ended || !service_ended) leave_behind();
}

// A forked child has this object but none of its threads, and shares its kernel
// objects. Its end releases them; it must not use them.
void runtime::end_in_forked_child() noexcept {
  for (const auto* thread : {&reactor_thread_, &service_thread_}) {
    if (*thread) (*thread)->forget();
  }
  core_->keep_for_ever();
  // Tasks wait in their frames for events that never come here, and must not be
  // destroyed meanwhile.
  new std::shared_ptr<started_base>(std::move(service_root_));
  static_cast<void>(roots_.release());
  static_cast<void>(service_roots_.release());
}

// `exit()` in a task does this to a runtime of static lifetime. The task below us on
// the stack never goes on, nothing can be turned, and the process ends as soon as we
// return. The service thread still tells the peers.
void runtime::end_within_a_turn() noexcept {
  core_->refuse_worlds();
  tell_of_what_runs(
      "is destroyed inside one of its own tasks, as by exit() in a task, and cannot end "
      "them");
  break_worlds(true);
  if (!core_->service().is_current()) static_cast<void>(end_service());
  // Threads that wait for the outcome of a task go on waiting: they end with the
  // process. If it does not end, neither do the tasks.
  keep_what_is_left();
}

/// Turns the user's reactor from here on, also if another thread did so until now.
void runtime::take_to_end() noexcept {
  if (turns_elsewhere()) return;
  try {
    core_->user().take(next_poller::this_thread);
  } catch (const std::exception& e) {
    core_->log(log_level::error,
               fmt::format("a runtime is destroyed by a thread that cannot turn its "
                           "reactor: {}",
                           e.what()));
  }
}

bool runtime::end_tasks() noexcept {
  // Tasks of other runtimes may be shrinking worlds of this one.
  const auto ended = [this] { return roots_->empty() && !core_->is_shrinking(); };
  const time_point begun = core_->service().now();
  if (turn_until(true, begun + settling_patience, ended)) return true;
  // An operation that no cancellation reaches, such as a shielded collective, ends with
  // its world. A world that is being left ends by itself.
  break_worlds(false);
  if (turn_until(true, begun + task_patience, ended)) return true;
  break_worlds(true);
  return turn_until(true, begun + task_patience + short_patience, ended);
}

void runtime::break_worlds(bool also_closing) noexcept {
  for (const auto& w : core_->worlds().snapshot()) {
    if (w->state() == world_state::closing && !also_closing) continue;
    w->break_with(w->describe_failure(cause::runtime_stopped, w->options().rank,
                                      operation_kind::none,
                                      "the member's runtime was destroyed"));
    // Closed by the others, which may not know yet that we close it too.
    if (w->state() == world_state::closed) w->begin_leaving();
  }
}

void runtime::drain_worlds(duration patience) noexcept {
  const auto worlds = core_->worlds().snapshot();
  static_cast<void>(turn_until(true, core_->service().now() + patience, [&] {
    const bool drained = std::all_of(worlds.begin(), worlds.end(),
                                     [](const auto& w) { return w->drained().is_set(); });
    return drained && !core_->user().has_loose_requests();
  }));
}

bool runtime::end_reactor_thread() noexcept {
  // Another thread is inside `run` of the runtime that is destroyed. We cannot end it.
  if (!reactor_thread_) return turning_ != turning::a_caller;
  if (reactor_thread_->end(core_->user(), thread_patience)) return true;
  core_->log(log_level::error,
             fmt::format("a runtime is destroyed, but its thread has not come back from "
                         "a task for {}: the thread is left behind",
                         duration_text(thread_patience)));
  return false;
}

/// Ends the service and its tasks. True if all of them have ended.
bool runtime::end_service() noexcept {
  const bool threaded = core_->env().starts_threads();
  // Hosted stores end after all else that users started: forming worlds needed them.
  service_roots_->cancel_after(duration::zero());
  const time_point now = core_->service().now();
  const bool tasks_ended =
      turn_until(false, now + store_patience, [&] { return service_roots_->empty(); });
  if (!tasks_ended) {
    core_->log(
        log_level::error,
        fmt::format("the runtime \"{}\" is destroyed, but what start_service() gave it "
                    "does not end: {}; the frames are left as they are",
                    core_->options().thread_name.str(), service_roots_->describe()));
  }
  core_->end_service(threaded ? goodbye_patience : duration::zero());
  const bool served = turn_until(false, now + store_patience + thread_patience,
                                 [&] { return service_root_->has_ended(); });
  if (service_thread_ && !service_thread_->end(core_->service(), thread_patience)) {
    core_->log(log_level::error,
               "a runtime is destroyed, but its service thread does not come back from "
               "what start_service() gave it: the thread is left behind");
    return false;
  }
  service_roots_->tell_errors();
  return tasks_ended && served;
}

void runtime::tell_of_what_runs(std::string_view why) noexcept {
  std::string text =
      fmt::format("the runtime \"{}\" {}: {}", core_->options().thread_name.str(), why,
                  roots_->empty() ? "worlds are still being shrunk" : roots_->describe());
  for (const auto& w : core_->worlds().snapshot()) {
    for (const operation_report& o : report_on(*w, core_->service().now()).pending) {
      fmt::format_to(std::back_inserter(text), "; {} in {}@{} at {}:{}", name_of(o.kind),
                     w->options().name.view(), w->epoch(), o.file, o.line);
    }
  }
  core_->log(log_level::error, text + "; the frames are left as they are");
}

// Tells threads that wait for its tasks that those do not end.
void runtime::leave_behind() noexcept {
  roots_->leave_behind();
  service_roots_->leave_behind();
  keep_what_is_left();
}

// Tasks that did not end may still be reached by what they wait for: nothing is freed.
void runtime::keep_what_is_left() noexcept {
  core_->note_end();
  for (const auto& thread : {reactor_thread_, service_thread_}) {
    if (thread) thread->leave_behind();
  }
  core_->keep_for_ever();
  struct remains {
    std::shared_ptr<started_base> service_root;
    roots* tasks;
    roots* service_tasks;
  };
  const auto kept = std::make_shared<remains>(
      remains{std::move(service_root_), roots_.release(), service_roots_.release()});
  // For leak checkers: a task that is found leads to its roots, and they to all the
  // rest.
  kept->tasks->keep(kept);
  kept->service_tasks->keep(kept);
}

}  // namespace manyworlds::inline v0
