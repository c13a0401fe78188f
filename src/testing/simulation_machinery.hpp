// Simulation machinery: the parts of a simulation.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "io/reactor.hpp"
#include "manyworlds/testing/simulation.hpp"
#include "testing/simulated_engine.hpp"
#include "testing/simulated_kernel.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

struct simulation::driven_reactor {
  driven_reactor(simulated_process& p, class reactor& r)
      : process(&p), reactor(&r), engine(&static_cast<simulated_engine&>(r.io())) {}

  [[nodiscard]] bool may_turn() const noexcept {
    return process->state() != process_state::stopped &&
           process->state() != process_state::killed && !turning && !engine->is_waiting();
  }
  [[nodiscard]] bool has_work(time_point now) const noexcept {
    return awake || engine->is_noticed() || (wakes_at && *wakes_at <= now);
  }

  simulated_process* process;
  class reactor* reactor;
  simulated_engine* engine;
  bool awake = true;
  bool turning = false;
  std::optional<time_point> wakes_at;
};

struct simulation::machinery {
  machinery(std::uint64_t seed, simulation_options options)
      : clockwork(seed, options),
        network(clockwork),
        test_random(clockwork.random.fork()) {}

  /// The things that a step may choose from.
  struct choices {
    std::vector<driven_reactor*> reactors;
    std::vector<driven_reactor*> sleepers;
    bool event = false;
  };
  [[nodiscard]] choices find_choices() const;
  [[nodiscard]] std::optional<time_point> next_instant() const;
  void run_step_actions();

  simulated_clockwork clockwork;
  simulated_network network;
  simulated_random test_random;
  std::vector<std::unique_ptr<simulated_process>> processes;
  std::vector<std::unique_ptr<driven_reactor>> reactors;
  std::multimap<std::uint64_t, action> step_actions;
  std::size_t hosts = 0;
  std::uint64_t turns_at_this_instant = 0;
  bool stuck = false;
};

}  // namespace manyworlds::inline v0
