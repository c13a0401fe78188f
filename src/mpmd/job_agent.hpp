// Job agent: starts, watches and ends a job's instances on one node, for whichever master
// has the highest term.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/mpmd/node_resources.hpp"
#include "manyworlds/store/store.hpp"
#include "manyworlds/world/runtime.hpp"
#include "manyworlds/world/world.hpp"
#include "mpmd/agent_instance.hpp"
#include "mpmd/agent_outbox.hpp"
#include "mpmd/agent_words.hpp"
#include "mpmd/job_meeting.hpp"

namespace manyworlds::inline v0::detail {

/// It decides nothing. It starts an incarnation at most once, refuses what is older than
/// what it has heard of, and restarts nothing by itself. Without a master or a store all
/// goes on (law G-c), for as long as the job says (`job_graph::absence`). Only its own
/// end ends its instances, with all that descends from them. It keeps what it has to
/// report until a master has recorded it.
///
/// Thread: the runtime's reactor. Lifetime: runtime and store outlive it.
class job_agent {
 public:
  job_agent(runtime& rt, store& meeting, node_resources node, agent_place place);
  job_agent(const job_agent&) = delete;
  job_agent& operator=(const job_agent&) = delete;

  /// Ends when the job is over, or `end` was called; its instances have ended then.
  /// Errors: std::runtime_error if masters go on refusing it for 10 s: they are of
  /// another version, or another agent serves its node, as while one that was killed has
  /// not been missed yet. So it does where it has heard no master for the job's absence.
  [[nodiscard]] task<void> run();
  /// Ends it. Thread: the reactor.
  void end() noexcept { told_to_end_.set(); }

 private:
  [[nodiscard]] task<void> follow_masters(scope& s);
  /// Serves masters of that term, until the job is over.
  [[nodiscard]] task<void> serve_master(world& w, scope& s, std::uint64_t term);
  [[nodiscard]] task<void> obey(world& w, scope& s);
  [[nodiscard]] agent_word hello() const;
  void carry_out(agent_word word, scope& s);
  void ensure(agent_word word, scope& s);
  [[nodiscard]] static task<void> start(std::shared_ptr<agent_instance> own,
                                        std::shared_ptr<agent_instance> before);
  [[nodiscard]] task<void> serve_workload(world& w);
  [[nodiscard]] task<void> end_all(bool drains);
  /// Ends when no master was heard for as long as the job says.
  [[nodiscard]] task<void> miss_masters();
  void tell(const instance_report& report);
  /// Tells masters how far instances are, once a second at most.
  [[nodiscard]] task<void> tell_progress();
  [[nodiscard]] std::shared_ptr<agent_instance> find(const instance_id& id,
                                                     std::uint64_t incarnation) const;

  runtime& runtime_;
  job_meeting meeting_;
  const node_resources node_;
  const agent_place place_;
  /// Tells this process from a later one on the node.
  const std::string name_;
  std::string graph_;
  /// The highest that was heard of.
  std::uint64_t term_ = 0;
  bool is_over_ = false;
  std::optional<duration> absence_;  ///< the job's, once a master was heard
  std::string missed_;               ///< why it has given up
  std::string refused_;  ///< why the last master refused it; empty if it did not
  time_point refused_at_{};
  std::map<instance_id, std::shared_ptr<agent_instance>> instances_;
  current_outbox to_master_;
  event told_to_end_;
  bool is_leaving_ = false;
  /// How far an instance is that has told so.
  std::map<instance_id, std::uint64_t> progress_told_;
};

}  // namespace manyworlds::inline v0::detail
