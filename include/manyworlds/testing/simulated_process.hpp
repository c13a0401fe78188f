// Simulated process: the environment of one runtime under a simulation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "manyworlds/detail/seeded_random.hpp"
#include "manyworlds/io/environment.hpp"
#include "manyworlds/io/socket_address.hpp"
#include "manyworlds/io/start_step.hpp"
#include "manyworlds/testing/simulated_program.hpp"

namespace manyworlds::inline v0 {

class simulation;

namespace detail {
class simulated_clockwork;
class simulated_engine;
class simulated_host;
class simulated_kernel;
class simulated_network;
class simulated_programs;
class simulated_resident;
class simulated_sockets;
}  // namespace detail

/// The states of a simulated process.
enum class process_state : unsigned char {
  running,
  stopped,   ///< not turned, as by SIGSTOP; the kernel goes on receiving for it
  killed,    ///< never turned again; its sockets are gone
  released,  ///< killed, and turned again only so that its objects can end
};

/// One process of a simulation, with its own address, ports, descriptors and randomness.
/// Lifetime: what is made from it (engines, reactors, sockets) ends before the
/// simulation.
///
///     mw::simulated_process& first = sim.add_process("server");
///     mw::simulated_runtime server(sim, first);
///     sim.kill(first);
///     mw::simulated_process& next = sim.add_process("server", first);  // with its ports
///     mw::simulated_runtime successor(sim, next);
///
/// It listens on its own alias of the loopback address: 127.0.0.1 and the wildcard mean
/// that alias, both to listen on and to connect to, so that an address it publishes leads
/// to it from every process.
class simulated_process final : public environment {
 public:
  ~simulated_process() override;

  /// Makes the simulated engine, for every kind.
  [[nodiscard]] detail::engine_choice make_engine(engine_kind kind) override;
  void fill_random(std::span<std::byte> bytes) override { random_.fill(bytes); }
  [[nodiscard]] process_identity identity() const override;
  [[nodiscard]] bool starts_threads() const noexcept override { return false; }
  [[nodiscard]] detail::shm::host_kernel* host() noexcept override;
  /// Returns what runs the programs that were added.
  [[nodiscard]] detail::process_host* processes() noexcept override;
  /// Lets the simulation turn `r` from now on. Precondition: its engine was made here.
  void attach(detail::reactor& r) override;
  /// Ends that.
  void detach(detail::reactor& r) noexcept override;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] process_state state() const noexcept { return state_; }
  /// Returns the address of the process, with this port.
  [[nodiscard]] socket_address address(std::uint16_t port = 0) const;

  /// Adds a program, which a runtime of this process starts by that name. They end with
  /// this process.
  void add_program(std::string name, simulated_body body);
  /// Lets the next start of that program fail.
  void fail_start(const std::string& name, start_step step, int error);
  /// Signals a program by its number: SIGKILL, SIGTERM, SIGSTOP, SIGCONT, or any that
  /// ends it. Returns false if there is none.
  bool signal_program(pid_t pid, int number);
  /// Kills a program as the kernel does that is out of memory. Returns false if there is
  /// none.
  bool kill_for_memory(pid_t pid);
  /// Returns the numbers of the programs that run.
  [[nodiscard]] std::vector<pid_t> programs() const;

  /// Returns whether anything of a program that was started is left, such as its frame.
  [[nodiscard]] bool has_programs() const noexcept;

  /// Says that the current turn takes that long. Called inside a turn.
  void spend(duration time) noexcept;
  [[nodiscard]] bool is_dead() const noexcept { return state_ >= process_state::killed; }

  /// Counts sockets that are not closed yet; a test that leaves some has found a leak.
  [[nodiscard]] std::size_t open_sockets() const noexcept { return open_sockets_; }
  /// Sets how many sockets may be open before `listen`, `open_stream` and accepting fail
  /// with EMFILE.
  void limit_descriptors(std::size_t most) noexcept { descriptor_limit_ = most; }

 private:
  friend class simulation;
  friend class detail::simulated_engine;
  friend class detail::simulated_kernel;
  friend class detail::simulated_network;
  friend class detail::simulated_sockets;

  simulated_process(simulation& owner, detail::simulated_network& net,
                    detail::simulated_clockwork& clockwork, std::size_t index,
                    std::size_t host, std::string name);

  simulation& simulation_;
  detail::simulated_network& network_;
  detail::simulated_clockwork& clockwork_;
  std::size_t index_;
  std::size_t host_;
  std::string name_;
  detail::seeded_random random_;
  std::unique_ptr<detail::simulated_sockets> sockets_;
  std::unique_ptr<detail::simulated_host> kernel_;
  std::vector<detail::simulated_engine*> engines_;
  std::vector<detail::simulated_resident*> residents_;
  process_state state_ = process_state::running;
  std::size_t open_sockets_ = 0;
  std::size_t descriptor_limit_ = 1024;
  // The budget of a slow reader: what it may still read, and since when that is counted.
  std::size_t bytes_per_millisecond_ = 0;
  std::size_t readable_now_ = 0;
  time_point readable_since_{};
  bool refill_awaited_ = false;
  /// It is one of the residents.
  std::unique_ptr<detail::simulated_programs> programs_;
};

}  // namespace manyworlds::inline v0
