// A runtime in virtual time, and its tasks.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "manyworlds/mw.hpp"
#include "manyworlds/testing/simulation.hpp"

namespace manyworlds::fuzzing {

class silent_log final : public log_sink {
 public:
  void write(log_level, std::string_view) noexcept override {}
};

/// A simulated process with a runtime.
class process {
 public:
  process(simulation& sim, std::string name) {
    runtime_options options;
    options.environment = &sim.add_process(std::move(name));
    options.log = &log_;
    options.shared_memory = false;
    options.heartbeat = std::chrono::seconds(1);
    rt_.emplace(options);
  }
  void start(task<void> t) {
    started<void> s = rt_->start(std::move(t));
    have_ended_.push_back([s] { return s.is_ready(); });
  }
  [[nodiscard]] bool is_quiet() const {
    return std::all_of(have_ended_.begin(), have_ended_.end(),
                       [](const auto& ended) { return ended(); });
  }
  [[nodiscard]] runtime& rt() { return *rt_; }
  void end() { rt_.reset(); }

 private:
  silent_log log_;
  std::vector<std::function<bool()>> have_ended_;
  std::optional<runtime> rt_;
};

/// A network without chance: runs differ by what they are fed.
inline simulation_options plain_network() {
  simulation_options options;
  options.jitter = duration::zero();
  options.short_transfers = false;
  return options;
}

/// No time passes while a runtime ends: its worlds, and its peers', need some before.
inline void end_both(simulation& sim, process& one, process& other) {
  one.rt().stop();
  other.rt().stop();
  sim.run_for(std::chrono::seconds(1));
  one.end();
  other.end();
}

/// A member of a world of two: formed, or not at all.
inline task<world> formed(process& p, memory_store& store, rank_t rank) {
  world w(p.rt(), store,
          {.name = "pair",
           .rank = rank,
           .size = 2,
           .drain = std::chrono::milliseconds(100),
           .suspect_after = std::chrono::seconds(3),
           .broken_after = std::chrono::seconds(5)});
  co_await w;
  co_return w;
}

}  // namespace manyworlds::fuzzing
