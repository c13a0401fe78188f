// Executor: what a task calls home. It runs work on one thread and keeps time.
#pragma once

#include <stdexcept>

#include "manyworlds/coro/timer_queue.hpp"
#include "manyworlds/coro/work.hpp"

namespace manyworlds::inline v0 {

class reactor;

/// One thread's queue of work and its timers. The reactor is one; `sync_wait` brings a
/// small one; a simulation drives several on one thread.
class executor {
 public:
  /// One that is the face of a foreign loop may be unable to keep time.
  explicit executor(bool keeps_time = true) noexcept : keeps_time_(keeps_time) {}
  executor(const executor&) = delete;
  executor& operator=(const executor&) = delete;
  virtual ~executor() = default;

  /// Queues work on the executor's own thread.
  virtual void schedule(work& w) noexcept = 0;
  /// Queues work from any thread, waking the executor if it sleeps.
  virtual void post(work& w) noexcept = 0;
  /// As `post`; false if the executor will run nothing more, and does not take it.
  [[nodiscard]] virtual bool try_post(work& w) noexcept {
    post(w);
    return true;
  }
  /// The executor's time; virtual under a simulation.
  [[nodiscard]] virtual time_point now() const noexcept = 0;

  /// Queues work from wherever the caller is.
  void execute(work& w) noexcept { is_current() ? schedule(w) : post(w); }

  /// As `execute`, and as `try_post`.
  [[nodiscard]] bool try_execute(work& w) noexcept {
    if (!is_current()) return try_post(w);
    schedule(w);
    return true;
  }

  /// Whether the caller runs on this executor's thread, inside one of its turns.
  [[nodiscard]] bool is_current() const noexcept { return current_ == this; }
  [[nodiscard]] static executor* current() noexcept { return current_; }

  /// The reactor that it is, for what waits for descriptors; null if it does no I/O.
  [[nodiscard]] virtual reactor* as_reactor() noexcept { return nullptr; }

  /// Says that its tasks are cancelled for the last time: what cannot be taken back must
  /// not keep them waiting for other processes. On the executor's thread only, as the
  /// question.
  void note_last_cancelling() noexcept { cancels_for_the_last_time_ = true; }
  [[nodiscard]] bool cancels_for_the_last_time() const noexcept {
    return cancels_for_the_last_time_;
  }

  /// On the executor's thread only.
  [[nodiscard]] timer_queue& timers() noexcept { return timers_; }
  /// Arms a timer of `timers()`. On the executor's thread only.
  void arm(timer& t, time_point when) {
    if (!keeps_time_) {
      throw std::logic_error(
          "this executor keeps no time: sleep_for and within need a task on a reactor");
    }
    timers_.arm(t, when);
  }

 protected:
  /// While it lives, the calling thread runs on behalf of `e`.
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
  static inline thread_local executor* current_ = nullptr;
  timer_queue timers_;
  bool keeps_time_;
  bool cancels_for_the_last_time_ = false;
};

}  // namespace manyworlds::inline v0
