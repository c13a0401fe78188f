// Reactor: one thread's event loop. It runs work, I/O completions, pollers and timers in
// bounded turns.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "io/cpu_binding.hpp"
#include "io/engine.hpp"
#include "io/poller_list.hpp"
#include "io/turn_meter.hpp"
#include "io/work_inbox.hpp"
#include "manyworlds/coro/executor.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

/// Returns how long a reactor should spin on this machine. It is zero where the machine
/// has one CPU, or the control group's quota is below two: a spin then uses up what the
/// thread that is waited for needs. One CPU by affinity is no such reason: its peers may
/// have others (see `reactor::hold_spinning`).
[[nodiscard]] duration default_spin() noexcept;
/// Returns true if a helper thread of this process can run beside the calling one: two
/// CPUs or more, by affinity and by quota. A thread inherits the affinity of the one that
/// makes it.
[[nodiscard]] bool has_cpus_for_helpers() noexcept;

struct reactor_options {
  /// How long to go on turning before sleeping, with pollers or without (a parked vCPU
  /// costs 30 to 80 us to wake, a cache line 0.14 us).
  ///
  /// After 1 us of spinning, or at once, the reactor yields on every turn, so that a peer
  /// that shares this core can run. The time that others then have the CPU does not
  /// count, up to a millisecond, or two if many peers share a CPU. After a longer one the
  /// reactor does not yield for a while.
  duration spin = std::chrono::microseconds(50);
  /// How long a reactor that does not spin otherwise does so after `expect_soon`. If no
  /// message came then, or it lost its CPU, it does not for a while.
  duration attention = duration::zero();
};

/// The executor of user coroutines, and of the service thread. Thread: all members but
/// `post`, `wake` and those that say "any" run on its own thread, the one that turns it
/// first. It may be constructed on another.
///
/// Lifetime: destroy it on its own thread, when nothing uses it any longer: no request in
/// flight, no timer armed, no poller registered. Work that is still queued does not run.
/// The `post` or `wake` that caused the last end may still be returning.
class reactor final : public executor {
 public:
  explicit reactor(std::unique_ptr<class engine> engine, reactor_options options = {});
  ~reactor() override;

  void schedule(work& w) noexcept override { ready_.push(w); }
  void post(work& w) noexcept override;
  [[nodiscard]] bool try_post(work& w) noexcept override;
  [[nodiscard]] time_point now() const noexcept override { return engine_->now(); }
  [[nodiscard]] reactor* as_reactor() noexcept override { return this; }
  /// Returns the time when this reactor last looked at the clock: at the start of its
  /// last whole turn. Use it for records on hot paths, never for a deadline: it is as old
  /// as the current step is long.
  [[nodiscard]] time_point recently() const noexcept { return recently_; }

  [[nodiscard]] class engine& io() noexcept { return *engine_; }
  [[nodiscard]] network& sockets() noexcept { return engine_->sockets(); }

  /// Registers a poller. Precondition: it is not registered.
  void add(poller& p) noexcept { pollers_.add(p); }
  /// Removes a poller, also while pollers are polled. Precondition: it is registered.
  void remove(poller& p) noexcept { pollers_.remove(p); }

  /// Queues work for the next turn, behind what is ready then. It serves code that does
  /// something long in slices: what `schedule` queues may run many times in one turn.
  void schedule_next_turn(work& w) noexcept { next_turn_.push(w); }
  /// Returns whether operations that need no wait may still be done in this turn. Beyond
  /// a limit their tasks go on in the next one, behind what waits (laws 5 and 9).
  [[nodiscard]] bool may_go_on_at_once() const noexcept {
    return at_once_ < most_at_once;
  }
  /// Counts an operation that was done without a wait; one that has copied much counts as
  /// several.
  void count_at_once(std::size_t bytes) noexcept {
    constexpr std::size_t as_long_as_another = 4096;
    at_once_ += 1 + static_cast<unsigned>(bytes / as_long_as_another);
  }
  /// Returns whether no work is ready: what a poller makes ready then may run at once.
  [[nodiscard]] bool has_nothing_ready() const noexcept { return ready_.empty(); }
  /// Runs what a poller has made ready since `has_nothing_ready` was true, in the midst
  /// of its look: a task goes on straight from the message that it waited for. Thread:
  /// its own, within a poller's `poll`, which may be entered by nothing that runs here.
  /// Returns whether it may be called again in this look: if work is left, others have
  /// their turn first (law 9).
  bool run_straight_on() noexcept {
    if (!ready_.empty()) run_ready();
    return ready_.empty();
  }
  /// Says that the library's work in this turn may take longer than is brief.
  void note_long_step() noexcept { meter_.note_long(); }
  /// Returns true if the library has had its share of this turn, or a task runs: then
  /// what can wait does so until the next turn (law 9). Looks at the clock only after
  /// something long.
  [[nodiscard]] bool is_turn_used_up() const noexcept {
    return meter_.is_at_something_long() &&
           (meter_.is_at_tasks() || meter_.library_so_far(now()) >= library_share);
  }

  /// Takes one bounded turn without sleeping: posted work, ready work, completions,
  /// pollers, timers. Returns true if anything was done. If not, `prepare_wait` tells
  /// whether there is something to do at once (completions may wait for 4 us while
  /// pollers find something).
  bool turn() noexcept;
  /// Turns until `finished()`, which is asked between turns, and sleeps in between.
  template <class Finished>
  void run_until(Finished&& finished) {
    while (!finished()) {
      if (!take_turn()) wait_between_turns();
    }
    end_turn();
  }
  /// Spins, then sleeps until there is something to do (it may return early). What it
  /// finds while it spins is done before it returns.
  void wait() noexcept;
  /// Makes `wait` and `run_until` look again. Thread: any.
  void wake() noexcept;

  /// Runs what was posted since the last turn, and what that makes ready. From here on
  /// `try_post` takes nothing: each work that it took has run. Thread: any, after the
  /// last turn.
  void close() noexcept;

  /// Serves a foreign loop: arms the wake-up, looks again, and returns how long the loop
  /// may sleep on `io().descriptor()`. Zero: there is something to do at once. Nothing:
  /// without a limit.
  [[nodiscard]] std::optional<duration> prepare_wait() noexcept;

  /// Counts the turns that did something, to detect "alive but not progressing". Thread:
  /// any.
  [[nodiscard]] std::uint64_t turns() const noexcept {
    return turns_.load(std::memory_order_relaxed);
  }
  /// Returns how long they took. Thread: any.
  [[nodiscard]] turn_times times() const noexcept { return meter_.read(); }
  /// Returns true while it sleeps in `wait`, which anything to do ends: it is neither
  /// busy nor blocked. A foreign loop's sleep is not known. Thread: any.
  [[nodiscard]] bool is_parked() const noexcept {
    return parked_.load(std::memory_order_relaxed);
  }
  /// Keeps it from spinning while `is_held`, although its options say so: a peer that it
  /// waits for has no CPU but this one. Thread: any.
  void hold_spinning(bool is_held) noexcept {
    spin_is_held_.store(is_held, std::memory_order_relaxed);
  }
  /// A message is about to come that a peer waits for: for as long as `attention` says,
  /// the reactor spins before it sleeps. Thread: its own.
  void expect_soon() noexcept {
    if (options_.attention > duration::zero())
      attentive_until_ = later(now(), options_.attention);
  }
  /// For that long the reactor spins before it sleeps, whatever its options say, and
  /// yields as it does then. Thread: its own.
  void stay_awake(duration how_long) noexcept { awake_until_ = later(now(), how_long); }
  /// Called when its thread turns it no longer. Another one may, after `take`.
  void release() noexcept;
  /// Gives it to a thread before its first turn there. Errors: those of `engine::take`.
  void take(next_poller by) { engine_->take(by); }
  /// Returns how long it spins before it sleeps; zero while that is held. Thread: any.
  [[nodiscard]] duration spins_for() const noexcept {
    return spin_is_held_.load(std::memory_order_relaxed) ? duration::zero()
                                                         : options_.spin;
  }
  /// Says how many peers' reactors are on this machine, so that a yield to many of them
  /// is told from one to a thread that computes. Thread: any.
  void note_peers_here(unsigned count) noexcept {
    peers_here_.store(count, std::memory_order_relaxed);
  }
  [[nodiscard]] bool is_spinning_held() const noexcept {
    return spin_is_held_.load(std::memory_order_relaxed);
  }
  /// Asks the kernel which CPU its thread is bound to now. Returns several CPUs if it has
  /// not rested yet. Thread: any.
  [[nodiscard]] cpu_binding binding() const noexcept;
  /// Counts requests in flight that nothing else waits for. The code that ends the
  /// reactor turns it until there are none. Thread: its own counts, any may ask.
  void count_loose_requests(int more) noexcept {
    MW_ASSERT(loose_requests_.load(std::memory_order_relaxed) + more >= 0,
              "each loose request ends once");
    loose_requests_.fetch_add(more);
  }
  [[nodiscard]] bool has_loose_requests() const noexcept { return loose_requests_ != 0; }
  /// Holds the threads that make blocking calls for this reactor. It is null until the
  /// first such call, and destroyed with the reactor.
  [[nodiscard]] std::shared_ptr<void>& companion() noexcept { return companion_; }
  /// Returns when the earliest timer is due, or now if work is ready. Simulations use it.
  [[nodiscard]] std::optional<time_point> next_due() noexcept;

 private:
  static constexpr std::size_t turn_limit = 128;
  /// The most operations of a turn that end without a wait: 10 to 30 us.
  static constexpr unsigned most_at_once = 256;
  /// The library begins its steps of a turn within this time. None of its steps takes
  /// much longer, and both together stay below 200 us.
  static constexpr duration library_share = std::chrono::microseconds(60);

  /// The number of empty polls between two turns while it spins.
  static constexpr unsigned polls_between_turns = 16;
  /// The number of empty turns of a spin before it offers its CPU to others in each one:
  /// 0.6 us, within which a small message is answered.
  static constexpr unsigned turns_before_yields = 3;

  void await_posters() const noexcept;
  bool take_turn() noexcept;
  void end_turn() noexcept;
  void wait_between_turns() noexcept;
  bool take_work() noexcept;
  bool poll_engine() noexcept;
  bool expire_timers() noexcept;
  void note_step(work_kind whose) noexcept;
  bool take_brief_turn() noexcept;
  void count_turn() noexcept;
  bool run_ready() noexcept;
  bool poll_pollers() noexcept;
  [[nodiscard]] duration spin_length() const noexcept;
  bool spin() noexcept;
  /// Offers the CPU to other threads. Returns the time that they had it.
  duration yield() noexcept;
  bool prepare_sleep(std::optional<time_point>& until) noexcept;
  void cancel_sleep() noexcept;

  std::unique_ptr<class engine> engine_;
  std::shared_ptr<void> companion_;
  reactor_options options_;
  work_queue ready_;
  work_queue next_turn_;
  work_inbox inbox_;
  poller_list pollers_;
  bool sleep_prepared_ = false;
  bool pollers_found_ = false;  ///< something since the engine was asked
  unsigned turns_without_engine_ = 0;
  unsigned at_once_ = 0;   ///< operations of this turn that needed no wait
  unsigned switches_ = 0;  ///< short ones to other threads, in the last spins
  time_point attentive_from_{};
  time_point attentive_until_{};
  time_point awake_until_{};
  time_point yields_from_{};
  duration without_yields_{};
  time_point engine_asked_{};
  time_point recently_;
  time_point turned_at_{};  ///< the start of the last whole turn, later by yields since
  turn_meter meter_;
  std::atomic<std::uint32_t> posting_{0};
  std::atomic<bool> closed_{false};
  std::atomic<std::uint64_t> turns_{0};
  std::atomic<bool> parked_{false};
  std::atomic<bool> spin_is_held_{false};
  std::atomic<unsigned> peers_here_{0};
  /// The kernel's number of its thread; 0 before it is known.
  std::atomic<int> thread_{0};
  std::atomic<int> loose_requests_{0};
};

}  // namespace manyworlds::inline v0::detail
