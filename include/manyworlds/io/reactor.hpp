// Reactor: one thread's event loop. Work, I/O completions, pollers and timers, in bounded
// turns.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "manyworlds/coro/executor.hpp"
#include "manyworlds/io/cpu_binding.hpp"
#include "manyworlds/io/engine.hpp"
#include "manyworlds/io/turn_meter.hpp"
#include "manyworlds/io/work_inbox.hpp"

namespace manyworlds::inline v0 {

/// Something that must be looked at rather than waited for: rings in shared memory,
/// device events. Looked at in each turn, so all the time while the reactor spins; asked
/// before it sleeps.
class poller {
 public:
  /// Looks once. True if it made progress.
  virtual bool poll() noexcept = 0;
  /// Arms a wake-up (`reactor::wake`) and looks again: true if the reactor may sleep. A
  /// poller that cannot wake the reactor returns the longest time it may sleep instead,
  /// through `limit`.
  virtual bool prepare_sleep(std::optional<duration>& limit) noexcept = 0;
  /// The reactor woke up.
  virtual void cancel_sleep() noexcept = 0;

 protected:
  /// `brief`: what a look finds mostly takes less than a look at the clock, and else it
  /// says so (`reactor::note_long_step`).
  explicit poller(work_kind looks = work_kind::library) noexcept : looks_(looks) {}
  ~poller() = default;

 private:
  friend class reactor;
  const work_kind looks_;
  poller* next_ = nullptr;
  poller* previous_ = nullptr;
  bool asked_ = false;
};

/// How long a reactor should spin on this machine: nothing where the machine has one CPU,
/// or the control group's quota is below two: a spin then uses up what the thread that is
/// waited for needs. One CPU by affinity is no such reason: its peers may have others
/// (see `reactor::hold_spinning`).
[[nodiscard]] duration default_spin() noexcept;
/// Whether a helper thread of this process can run beside the calling one: two CPUs or
/// more, by affinity and by quota. The threads that a process makes inherit the affinity
/// of the one that makes them.
[[nodiscard]] bool has_cpus_for_helpers() noexcept;

struct reactor_options {
  /// How long to go on turning before sleeping, pollers or not (a parked vCPU costs 30 to
  /// 80 us to wake, a cache line 0.14 us). Who else wants the CPU gets it after the first
  /// microsecond, or at once: with more ranks than cores a reactor waits for one that it
  /// keeps from running. What those have of it does not count, up to a millisecond;
  /// who then keeps it for long does not get it so soon again.
  duration spin = std::chrono::microseconds(50);
};

/// The executor of user coroutines, and of the service thread. Everything but `post`,
/// `wake` and `turns` is for its own thread: the one that turns it first. It may be
/// constructed on another.
///
/// Destroy it on its own thread, when nothing of it is used any more: no request in
/// flight, no timer armed, no poller registered. Work still queued is forgotten, not run.
/// A `post` or `wake` that caused the end of the last thing the reactor was needed for
/// may still be returning.
class reactor final : public executor {
 public:
  explicit reactor(std::unique_ptr<class engine> engine, reactor_options options = {});
  ~reactor() override;

  void schedule(work& w) noexcept override { ready_.push(w); }
  void post(work& w) noexcept override;
  [[nodiscard]] bool try_post(work& w) noexcept override;
  [[nodiscard]] time_point now() const noexcept override { return engine_->now(); }
  [[nodiscard]] reactor* as_reactor() noexcept override { return this; }
  /// The time when this reactor last looked at the clock: at the start of its last whole
  /// turn. For what is recorded on hot paths, never for a deadline: it is as
  /// old as whatever runs now is long.
  [[nodiscard]] time_point recently() const noexcept { return recently_; }

  [[nodiscard]] class engine& io() noexcept { return *engine_; }
  [[nodiscard]] network& sockets() noexcept { return engine_->sockets(); }

  void add(poller& p) noexcept;
  void remove(poller& p) noexcept;

  /// Queues work for the next turn, behind what is ready then: for who does a slice of
  /// something long. What is scheduled otherwise may run many times in one turn.
  void schedule_next_turn(work& w) noexcept { next_turn_.push(w); }
  /// What the library does in this turn may take longer than is brief.
  void note_long_step() noexcept { meter_.note_long(); }
  /// The library has had its share of this turn, or a task runs: what can wait for the
  /// next turn does (law 9). Looks at the clock only after something long.
  [[nodiscard]] bool is_turn_used_up() const noexcept {
    return meter_.is_at_something_long() &&
           (meter_.is_at_tasks() || meter_.library_so_far(now()) >= library_share);
  }

  /// One bounded turn without sleeping: posted work, ready work, completions, pollers,
  /// timers. True if anything was done; if not, `prepare_wait` tells whether there is
  /// something to do at once (completions may wait for 4 us while pollers find
  /// something).
  bool turn() noexcept;
  /// Turns until `finished()`, which is asked between turns; sleeps in between.
  template <class Finished>
  void run_until(Finished&& finished) {
    while (!finished()) {
      if (!take_turn()) rest_between_turns();
    }
    end_turn();
  }
  /// Spins, then sleeps until there is something to do (may return early). What it finds
  /// while it spins is done before it returns.
  void rest() noexcept;
  /// Makes `rest`, `run_until` look again. Any thread.
  void wake() noexcept;

  /// After the last turn, on whatever thread: runs what was posted since, and what that
  /// makes ready. From here on `try_post` takes nothing: each step that it took has run.
  void close() noexcept;

  /// For a foreign loop: arms the wake-up, looks again, and tells how long the loop may
  /// sleep on `io().descriptor()`: zero if there is something to do at once, nothing if
  /// for ever.
  [[nodiscard]] std::optional<duration> prepare_wait() noexcept;

  /// Turns that did something, for "alive but not progressing". Any thread.
  [[nodiscard]] std::uint64_t turns() const noexcept {
    return turns_.load(std::memory_order_relaxed);
  }
  /// How long they took. Any thread.
  [[nodiscard]] turn_times times() const noexcept { return meter_.read(); }
  /// Asleep in `rest`, which anything to do ends: not busy, and not blocked either. A
  /// foreign loop's sleep is not known. Any thread.
  [[nodiscard]] bool is_parked() const noexcept {
    return parked_.load(std::memory_order_relaxed);
  }
  /// Not to spin as long as it is held, though its options say so: a peer that it waits
  /// for has no CPU but this one. Any thread.
  void hold_spinning(bool is_held) noexcept {
    spin_is_held_.store(is_held, std::memory_order_relaxed);
  }
  /// How long it spins before it sleeps; zero while that is held. Any thread.
  [[nodiscard]] duration spins_for() const noexcept {
    return spin_is_held_.load(std::memory_order_relaxed) ? duration::zero()
                                                         : options_.spin;
  }
  [[nodiscard]] bool is_spinning_held() const noexcept {
    return spin_is_held_.load(std::memory_order_relaxed);
  }
  /// Which CPU its thread is bound to, now; several, if it has not rested yet. Asks the
  /// kernel. Any thread.
  [[nodiscard]] cpu_binding binding() const noexcept;
  /// Requests in flight that nothing else waits for. They are counted on this thread;
  /// whoever ends the reactor turns it until there are none. Any thread may ask.
  void count_loose_requests(int more) noexcept { loose_requests_.fetch_add(more); }
  [[nodiscard]] bool has_loose_requests() const noexcept { return loose_requests_ != 0; }
  /// Holds the threads that make blocking calls for this reactor: null until the first
  /// such call, destroyed with the reactor.
  [[nodiscard]] std::shared_ptr<void>& companion() noexcept { return companion_; }
  /// When the earliest timer is due, or at once if work is ready; for simulations.
  [[nodiscard]] std::optional<time_point> next_due() noexcept;

 private:
  static constexpr std::size_t turn_limit = 128;
  /// What the library begins in a turn it begins within this time. No step of its takes
  /// much longer, and both together stay below 200 us.
  static constexpr duration library_share = std::chrono::microseconds(60);

  /// Empty looks at the pollers between two turns while it spins.
  static constexpr unsigned looks_between_turns = 16;
  /// Empty turns of a spin before it offers its CPU to others in each: 0.6 us, within
  /// which a small message is answered.
  static constexpr unsigned turns_before_yields = 3;

  void await_posters() const noexcept;
  bool take_turn() noexcept;
  void end_turn() noexcept;
  void rest_between_turns() noexcept;
  bool take_work() noexcept;
  bool ask_engine() noexcept;
  bool expire_timers() noexcept;
  void note_step(work_kind whose) noexcept;
  bool glance() noexcept;
  void count_turn() noexcept;
  bool run_ready() noexcept;
  bool poll_pollers() noexcept;
  bool spin() noexcept;
  /// What others had of this CPU meanwhile.
  duration yield() noexcept;
  bool prepare_sleep(std::optional<time_point>& until) noexcept;
  void cancel_sleep() noexcept;

  std::unique_ptr<class engine> engine_;
  std::shared_ptr<void> companion_;
  reactor_options options_;
  work_queue ready_;
  work_queue next_turn_;
  work_inbox inbox_;
  poller* pollers_ = nullptr;
  poller* next_poller_ = nullptr;
  poller* first_poller_ = nullptr;  ///< to look at: the turn before was used up
  bool sleep_prepared_ = false;
  bool pollers_found_ = false;  ///< something since the engine was asked
  unsigned turns_without_engine_ = 0;
  unsigned switches_ = 0;  ///< to others and soon back, in the last spins
  time_point yields_from_{};
  duration without_yields_{};
  time_point engine_asked_{};
  time_point recently_;
  turn_meter meter_;
  std::atomic<std::uint32_t> posting_{0};
  std::atomic<bool> closed_{false};
  std::atomic<std::uint64_t> turns_{0};
  std::atomic<bool> parked_{false};
  std::atomic<bool> spin_is_held_{false};
  /// The kernel's number of its thread, once that is known; 0 before.
  std::atomic<int> thread_{0};
  std::atomic<int> loose_requests_{0};
};

}  // namespace manyworlds::inline v0
