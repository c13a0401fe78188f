// Simulated workers: a session's workers, each a process of a simulation.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "manyworlds/detail/notice.hpp"
#include "manyworlds/spmd/function_table.hpp"
#include "manyworlds/spmd/session_options.hpp"
#include "simulation/scenario.hpp"
#include "simulation/world_cluster.hpp"
#include "spmd/worker_source.hpp"

namespace manyworlds_tests {

/// One incarnation of a worker: a process that runs the product's worker loop.
struct simulated_worker {
  int id = 0;
  std::uint64_t incarnation = 0;
  /// Null until it was started.
  member_process* process = nullptr;
  /// Set when its parent knows that it has ended.
  mw::notice told;
  std::string how;
  bool is_unwanted = false;

  [[nodiscard]] bool is_there() const {
    return process != nullptr && process->is_alive() && !told.is_set();
  }
};

/// Starts workers beside the first process of a cluster, which is their controller. A
/// process takes a while to start, and its end a while to be noticed: as the seed says.
/// Lifetime: the cluster and the functions outlive it and its workers.
class simulated_workers final : public mw::worker_source {
 public:
  simulated_workers(cluster& all, placement where, const mw::function_table& functions,
                    mw::session_options limits)
      : all_(all), where_(where), functions_(functions), limits_(limits) {}
  ~simulated_workers() override;

  void name_session(const std::string& name, int workers) override {
    session_ = name;
    count_ = workers;
  }
  [[nodiscard]] mw::store& meeting() noexcept override { return *all_.at(0).rendezvous; }
  [[nodiscard]] mw::task<void> start(int worker, std::uint64_t incarnation) override;
  [[nodiscard]] mw::task<std::string> ended(int worker) override;
  [[nodiscard]] mw::task<void> end(int worker, mw::duration patience) override;
  [[nodiscard]] std::int64_t pid(int worker) const noexcept override;

  /// Returns the present incarnation, or null.
  [[nodiscard]] std::shared_ptr<simulated_worker> find(int worker) const noexcept;
  /// Kills it as SIGKILL does. Its parent hears of that a little later.
  static void kill(cluster& all, const std::shared_ptr<simulated_worker>& w);

 private:
  void launch(const std::shared_ptr<simulated_worker>& w);
  static void reap(cluster& all, const std::shared_ptr<simulated_worker>& w,
                   std::string how);

  cluster& all_;
  placement where_;
  const mw::function_table& functions_;
  const mw::session_options limits_;
  std::string session_;
  int count_ = 0;
  std::map<int, std::shared_ptr<simulated_worker>> workers_;
};

}  // namespace manyworlds_tests
