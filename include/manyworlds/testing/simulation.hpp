// Simulation: runs several processes, their network and their clock in one process on one
// thread, from a seed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "manyworlds/detail/seeded_random.hpp"
#include "manyworlds/testing/simulated_process.hpp"

namespace manyworlds::inline v0 {

/// Draws the same sequence from the same seed with every compiler and library, so that a
/// seed means one run everywhere:
///
///     const std::uint64_t which = sim.random().below(3);
using simulated_random = detail::seeded_random;

/// Options of a simulation: its network, and what the seed may choose.
struct simulation_options {
  /// The least time that a segment is on its way.
  duration latency = std::chrono::microseconds(20);
  /// The seed chooses a part of it that is added to the latency of every segment.
  duration jitter = std::chrono::microseconds(80);
  /// The rate of each direction of a connection; 0 is without a limit.
  std::uint64_t bytes_per_second = 0;
  /// The bytes that a writer may have on their way before it must wait.
  std::size_t send_buffer = 128 * 1024;
  /// The bytes that a reader may leave unread before its sender is held.
  std::size_t receive_window = 64 * 1024;
  /// The seed chooses partial sends and receives.
  bool short_transfers = true;
  /// The seed chooses the pieces in which bytes travel.
  bool split_segments = true;
  /// The seed chooses a few of the requests that could end and puts them off to a later
  /// turn. With hundreds in flight that is always one, and time would hardly pass.
  bool late_requests = true;
  /// After this time without an answer a connect ends with ETIMEDOUT.
  duration connect_limit = std::chrono::seconds(127);
  /// Lets processes of one host share memory.
  bool shared_memory = false;
  /// The seed chooses a part of it that passes with every turn. Zero: only waiting takes
  /// time.
  duration longest_turn = duration::zero();
};

/// One event, for a person who reads the trace of a failing seed.
struct simulated_event {
  std::uint64_t step;
  duration time;
  std::string_view process;
  std::string_view what;
  std::int64_t subject;  ///< mostly a socket
  std::uint64_t amount;  ///< mostly bytes or an errno

  [[nodiscard]] std::string text() const;
};

/// Turns the reactors of its processes in an order chosen by the seed, one turn a step,
/// between the events of the network. Time stands still while anything can be done and
/// then jumps to the next timer or event. The same seed and the same calls give the same
/// run.
///
///     mw::simulation sim(seed);
///     mw::simulated_runtime server(sim, "server"), client(sim, "client");
///     auto served = server->start(serve(*server, store));
///     auto asked = client->start(ask(*client, store));
///     sim.after(1s, [&] { sim.partition(server.process(), client.process()); });
///     CHECK(sim.run_until([&] { return asked.is_ready(); }, 1min));
///
/// A reactor that can do nothing is put to sleep by `reactor::prepare_wait`, as by a
/// foreign loop, so that a lost wake-up is a hang here too. A hang is an answer:
/// `run_until` returns false and `describe` tells which process waits for what.
class simulation {
 public:
  /// What is done at a time.
  using action = std::function<void()>;
  /// Takes the events of a run.
  using trace_sink = std::function<void(const simulated_event&)>;

  explicit simulation(std::uint64_t seed, simulation_options options = {});
  simulation(const simulation&) = delete;
  simulation& operator=(const simulation&) = delete;
  ~simulation();

  /// Adds a process on a new host. It lives as long as the simulation.
  simulated_process& add_process(std::string name);
  /// Adds a process with the address and ports of `beside`, say its successor after a
  /// kill.
  simulated_process& add_process(std::string name, const simulated_process& beside);

  [[nodiscard]] time_point now() const noexcept;
  [[nodiscard]] duration elapsed() const noexcept;
  [[nodiscard]] std::uint64_t steps() const noexcept;
  /// Returns the randomness of the run, which follows from its seed.
  [[nodiscard]] simulated_random& random() noexcept;

  /// Runs one turn of a reactor or one event. Returns false if nothing is left that could
  /// happen.
  bool step();
  /// Steps until `finished()`, which is asked before each step. Returns false if nothing
  /// is left to happen (`is_stuck`) or the time has passed.
  template <class Finished>
  [[nodiscard]] bool run_until(Finished&& finished,
                               duration at_most = std::chrono::hours(1)) {
    wake_all();
    const time_point limit = now() + at_most;
    while (!finished()) {
      if (!step_before(limit)) return finished();
    }
    return true;
  }
  /// Lets that much time pass.
  void run_for(duration time);
  /// Returns true if the last step found nothing left that could ever happen.
  [[nodiscard]] bool is_stuck() const noexcept;

  /// Describes what every process waits for: state, timers, requests in flight with their
  /// sockets.
  [[nodiscard]] std::string describe() const;
  /// Hands each event from now on to `sink`.
  void trace_to(trace_sink sink);
  /// Returns a hash of all that happened so far.
  [[nodiscard]] std::uint64_t fingerprint() const noexcept;

  /// Runs `what` before step `n`, or before the next step if that is past. It does not
  /// run if nothing is left to happen first.
  void at_step(std::uint64_t n, action what);
  /// Runs `what` at a time, or before the next step if that has passed.
  void at(time_point when, action what);
  /// Runs `what` when that much time has passed.
  void after(duration delay, action what);

  // Faults. All of them may be called between steps, from actions and from inside a turn.

  /// Kills a process, as SIGKILL does: its reactors are no longer turned. Its peers read
  /// the end of the stream or a reset, as the seed decides. Its requests end (ECANCELED,
  /// EPIPE) only once it is released.
  void kill(simulated_process& p);
  /// Turns a killed process again, cut off from the network, so that its objects can be
  /// destroyed.
  void release(simulated_process& p);
  /// Stops a process, as SIGSTOP does: its reactors are not turned.
  void stop(simulated_process& p);
  /// Turns a stopped process again.
  void resume(simulated_process& p);

  /// Holds all segments from `from` to `to`; connections stay half open.
  void block(const simulated_process& from, const simulated_process& to);
  /// Does what `block` does, in both directions.
  void partition(const simulated_process& a, const simulated_process& b);
  /// Stalls the existing connections, in both directions; new ones work.
  void lose_link(const simulated_process& a, const simulated_process& b);
  /// Ends `block`, `partition` and `lose_link`: what was held arrives.
  void heal(const simulated_process& a, const simulated_process& b);
  /// Resets the existing connections.
  void cut(const simulated_process& a, const simulated_process& b);
  /// Sets the latency and jitter of segments from `from` to `to`, from now on.
  void delay(const simulated_process& from, const simulated_process& to, duration latency,
             duration jitter = duration::zero());
  /// Limits how fast the process reads; 0 ends the limit.
  void slow_reader(simulated_process& p, std::size_t bytes_per_millisecond);

 private:
  friend class simulated_process;
  friend class detail::simulated_engine;
  friend class detail::simulated_kernel;
  struct driven_reactor;
  struct machinery;

  bool step_before(time_point limit);
  void turn(driven_reactor& r);
  /// Turns every reactor once more: code outside the simulation may have given it work.
  void wake_all() noexcept;
  /// Lets an engine sleep inside a turn: everything else goes on meanwhile.
  void sleep(detail::simulated_engine& sleeper, std::optional<time_point> until);
  void attach(simulated_process& p, detail::reactor& r);
  void detach(detail::reactor& r) noexcept;
  void tell_processes_of_host(simulated_process& dead);
  [[nodiscard]] detail::simulated_resident* find_resident(
      std::size_t host, std::string_view name) const noexcept;

  std::unique_ptr<machinery> machinery_;
};

}  // namespace manyworlds::inline v0
