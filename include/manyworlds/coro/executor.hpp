// Executor: the home of a task. It runs work on one thread and keeps time.
#pragma once

#include <stdexcept>

#include "manyworlds/detail/timer_queue.hpp"
#include "manyworlds/detail/work.hpp"

namespace manyworlds::inline v0 {

namespace detail {
class reactor;
}  // namespace detail

/// One thread's queue of work and its timers. The reactor is one; `sync_wait` brings a
/// small one; a simulation drives several on one thread.
class executor {
 public:
  /// `keeps_time`: an adapter of a foreign loop may be unable to keep time.
  explicit executor(bool keeps_time = true) noexcept : keeps_time_(keeps_time) {}
  executor(const executor&) = delete;
  executor& operator=(const executor&) = delete;
  virtual ~executor() = default;

  /// Queues work. Thread: the executor's own.
  virtual void schedule(detail::work& w) noexcept = 0;
  /// Queues work and wakes the executor if it sleeps. Thread: any.
  virtual void post(detail::work& w) noexcept = 0;
  /// Does what `post` does. Returns false if the executor will run nothing more, and does
  /// not take it.
  [[nodiscard]] virtual bool try_post(detail::work& w) noexcept {
    post(w);
    return true;
  }
  /// Returns the executor's time, which is virtual under a simulation.
  [[nodiscard]] virtual time_point now() const noexcept = 0;

  /// Queues work. Thread: any.
  void execute(detail::work& w) noexcept { is_current() ? schedule(w) : post(w); }

  /// Does what `execute` does, and refuses as `try_post` does.
  [[nodiscard]] bool try_execute(detail::work& w) noexcept {
    if (!is_current()) return try_post(w);
    schedule(w);
    return true;
  }

  /// Returns true if the caller runs on this executor's thread, inside one of its turns.
  [[nodiscard]] bool is_current() const noexcept { return current_ == this; }
  /// Returns the executor of which the calling thread runs a turn, or null.
  [[nodiscard]] static executor* current() noexcept { return current_; }

  /// Returns this executor as a reactor, for code that waits for descriptors; null if it
  /// does no I/O.
  [[nodiscard]] virtual detail::reactor* as_reactor() noexcept { return nullptr; }

  /// Notes that its tasks are cancelled for the last time: what cannot be taken back must
  /// not keep them waiting for other processes. Thread: the executor's only, also for the
  /// question.
  void note_last_cancelling() noexcept { cancels_for_the_last_time_ = true; }
  [[nodiscard]] bool cancels_for_the_last_time() const noexcept {
    return cancels_for_the_last_time_;
  }

  /// Returns its timers. Thread: the executor's only.
  [[nodiscard]] detail::timer_queue& timers() noexcept { return timers_; }
  /// Arms a timer of `timers()`. Thread: the executor's only. Errors: std::logic_error if
  /// the executor keeps no time.
  void arm(detail::timer& t, time_point when) {
    if (!keeps_time_) {
      throw std::logic_error(
          "this executor keeps no time: sleep_for and within need a task on a reactor");
    }
    timers_.arm(t, when);
  }

 protected:
  /// Marks the calling thread as running on behalf of `e` while this object lives.
  class turn_scope {
   public:
    explicit turn_scope(executor& e) noexcept : outer_(current_) { current_ = &e; }
    turn_scope(const turn_scope&) = delete;
    turn_scope& operator=(const turn_scope&) = delete;
    ~turn_scope() { current_ = outer_; }

   private:
    executor* outer_;
  };

 private:
  // Per thread, not global: it answers only "which executor runs here", for `execute`.
  // Visible, so that it is the same in all shared objects of a process: a plugin that has
  // the static library in it takes the program's, if that exports it (-rdynamic).
  __attribute__((visibility("default"))) static inline thread_local executor* current_ =
      nullptr;
  detail::timer_queue timers_;
  bool keeps_time_;
  bool cancels_for_the_last_time_ = false;
};

}  // namespace manyworlds::inline v0
