// Simulated runtime: a runtime in a process of a simulation.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "manyworlds/testing/simulation.hpp"
#include "manyworlds/world/runtime.hpp"

namespace manyworlds::inline v0 {

/// Owns a runtime that a simulation turns. Its tasks are started as on any runtime, and
/// run whenever the simulation does:
///
///     mw::simulation sim(seed);
///     mw::simulated_runtime server(sim, "server");
///     mw::simulated_runtime client(sim, "client");
///     auto served = server->start(serve(*server, store));
///     auto asked = client->start(ask(*client, store));
///     sim.after(2s, [&] { sim.kill(server.process()); });
///     CHECK(sim.run_until([&] { return asked.is_ready(); }, 1min));
///
/// Thread: the simulation's. Lifetime: the simulation must outlive it, and it is not
/// destroyed inside a turn. Its destructor ends the tasks in virtual time, also those of
/// a process that was stopped or killed: what they own is freed.
class simulated_runtime {
 public:
  /// Adds a process on a host of its own. Errors: those of `runtime`.
  simulated_runtime(simulation& sim, std::string name, runtime_options options = {})
      : simulated_runtime(sim, sim.add_process(std::move(name)), std::move(options)) {}
  /// Runs in a process that was added before, such as the successor of a killed one.
  simulated_runtime(simulation& sim, simulated_process& process,
                    runtime_options options = {})
      : sim_(sim), process_(process) {
    options.environment = &process;
    runtime_ = std::make_unique<runtime>(options);
  }
  simulated_runtime(const simulated_runtime&) = delete;
  simulated_runtime& operator=(const simulated_runtime&) = delete;
  ~simulated_runtime() {
    sim_.resume(process_);
    sim_.release(process_);
    if (!process_.has_programs()) return;
    // Programs end in virtual time, which does not pass while a runtime is destroyed.
    runtime_->stop();
    static_cast<void>(sim_.run_until([this] { return !process_.has_programs(); }));
  }

  /// Gives the runtime.
  [[nodiscard]] runtime& operator*() const noexcept { return *runtime_; }
  /// Gives the runtime.
  [[nodiscard]] runtime* operator->() const noexcept { return runtime_.get(); }
  [[nodiscard]] simulated_process& process() const noexcept { return process_; }

 private:
  simulation& sim_;
  simulated_process& process_;
  std::unique_ptr<runtime> runtime_;
};

}  // namespace manyworlds::inline v0
