// Agent instance: one incarnation of an instance, as its agent runs it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/launch/launch_context.hpp"
#include "manyworlds/launch/process_options.hpp"
#include "manyworlds/launch/supervised_process.hpp"
#include "manyworlds/world/runtime.hpp"
#include "mpmd/agent_outbox.hpp"
#include "mpmd/agent_words.hpp"
#include "mpmd/instance_report.hpp"

namespace manyworlds::inline v0::detail {

/// What an agent knows that a start does not say.
struct agent_place {
  std::string job;
  std::string node;
  /// Where the meeting store is, as this node's workloads reach it.
  std::string store;
  std::string secret_file;
  bool insecure = false;
  std::string interface;
  /// Files for each incarnation's output and for what it records of its failure, in this
  /// folder; empty: the agent's own output, and none.
  std::string log_folder;
  process_guard* guard = nullptr;  ///< ends their trees when the agent is killed
  /// The agent's own environment, which its instances inherit.
  launch_variables inherited;
};

/// Starts it once, watches it, and ends it with all that descends from it. Thread: the
/// runtime's reactor. Lifetime: the runtime outlives it.
class agent_instance {
 public:
  agent_instance(runtime& rt, const agent_place& place, const agent_word& ensure,
                 std::function<void(const agent_instance&)> told);
  agent_instance(const agent_instance&) = delete;
  agent_instance& operator=(const agent_instance&) = delete;

  /// Runs it to its end; nothing of it is left then. Errors: none.
  [[nodiscard]] static task<void> run(std::shared_ptr<agent_instance> self);
  /// Ends it by SIGTERM and SIGKILL; `drains`: first a workload that is joined is let
  /// drain. Again is allowed.
  [[nodiscard]] static task<void> end(std::shared_ptr<agent_instance> self, bool drains);

  /// Serves a workload that has joined, until its world is over. What it tells a master
  /// goes there.
  [[nodiscard]] static task<void> serve(std::shared_ptr<agent_instance> self, world& w,
                                        const std::string& graph,
                                        const current_outbox& to_master);
  /// Passes on to the workload; drops it while none is joined.
  void pass(agent_word word) { to_workload_.push(std::move(word)); }
  /// The master has recorded a fact, or refuses it: that goes on to the workload.
  void note_recorded(agent_word word);
  /// Tells a master that is there since now what none has recorded yet.
  void tell_facts(const current_outbox& to_master) const;

  [[nodiscard]] const instance_report& report() const noexcept { return report_; }
  [[nodiscard]] bool is_over() const noexcept {
    return report_.life == instance_life::ended;
  }
  /// Returns whether that is what its process was given to prove itself.
  [[nodiscard]] bool knows(const std::string& token) const noexcept {
    return token == token_;
  }
  /// It is left behind by a newer incarnation, and waits for its end.
  [[nodiscard]] event& over() noexcept { return over_; }

 private:
  void become(instance_life life);
  [[nodiscard]] bool hear(agent_word word, const current_outbox& to_master);
  void hear_fact(agent_word word, const current_outbox& to_master);

  runtime& runtime_;
  const start_spec spec_;
  const std::string token_;
  std::string files_;  ///< the start of its files' names; empty if it has none
  std::function<void(const agent_instance&)> told_;
  instance_report report_;
  std::unique_ptr<supervised_process> process_;
  current_outbox to_workload_;
  /// The last value of each key that no master has recorded.
  std::map<std::string, agent_word> unrecorded_;
  /// The world of the workload that is joined; null while none is.
  world* joined_ = nullptr;
  bool is_told_to_end_ = false;
  bool says_ready_ = false;
  event over_;
};

}  // namespace manyworlds::inline v0::detail
