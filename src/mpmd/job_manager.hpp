// Job manager: draws the conclusions from what agents tell, and closes the gap between
// what is and what should be. It has no I/O, no threads and no clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mpmd/failover_coordinator.hpp"
#include "mpmd/instance_regions.hpp"
#include "mpmd/job_context.hpp"
#include "mpmd/job_scheduler.hpp"
#include "mpmd/node_views.hpp"

namespace manyworlds::inline v0::detail {

/// Limits of a job's manager, in milliseconds.
struct manager_limits {
  /// Agents that are waited for before anything is placed.
  std::size_t nodes = 1;
  /// How long they are waited for.
  recorded_time join = 60'000;
  /// How long an agent may be away that is not known to be dead.
  recorded_time cut_off = 30'000;
  /// How long instances may lack a place before the whole job is started again.
  recorded_time no_place = 30'000;
  /// How long a controller may think about a failure.
  recorded_time answer = 1'000;
};

/// What the controller of a session says of a worker, which is of its role.
struct session_loss {
  instance_id controller;
  std::uint64_t controller_incarnation = 0;
  instance_id worker;
  std::uint64_t incarnation = 0;
  std::string why;
};

/// Manages one job, under one term.
///
/// The master calls `decide` after it has told what was heard, has `context().
/// take_changes()` written, and only then sends what `orders` gives (law G-b). A new
/// master does the same with what the store had: recovery is no special path. What the
/// agents report is compared by incarnation, so that an instance that runs is left alone.
class job_manager {
 public:
  job_manager(job_context context, manager_limits limits, recorded_time now);
  job_manager(const job_manager&) = delete;
  job_manager& operator=(const job_manager&) = delete;

  /// An agent is there, by the name of its process, with all that it has. Reports of
  /// unknown instances are left out.
  void node_came(const node_resources& resources, std::string agent,
                 const std::vector<instance_report>& has);
  /// The agent is gone. `is_dead`: so are its instances; otherwise it may be back.
  void node_lost(std::string_view node, bool is_dead, recorded_time now);
  /// The store by which agents find their master did not answer: those that are away have
  /// their time from when it does.
  void store_is_away(recorded_time now);
  /// An agent tells of an instance. False: it is no instance of this job.
  bool heard(std::string_view node, const instance_report& report);
  /// A controller has answered whether it copes with the loss of that incarnation. It is
  /// asked about ends, about limits that passed, and about what is lost with its node. It
  /// is not asked about what a session's own controller has let go, which has decided
  /// that already.
  void answered(const instance_id& about, std::uint64_t incarnation, bool is_handled);
  /// A session's controller has no use for one of its workers. What another says of it,
  /// or an earlier controller, is left out.
  void lost_to_session(session_loss told);
  /// The job shall end.
  void stop(std::string why);

  /// Concludes what follows from all of that, in the context alone.
  void decide(recorded_time now);
  /// Returns what the agents have yet to be told. Precondition: the changes of the
  /// context are written.
  [[nodiscard]] std::vector<agent_order> orders();
  /// Returns when `decide` is due though nothing is heard.
  [[nodiscard]] std::optional<recorded_time> next_due(recorded_time now) const;

  [[nodiscard]] job_context& context() noexcept { return job_; }
  [[nodiscard]] const job_context& context() const noexcept { return job_; }
  [[nodiscard]] const node_views& nodes() const noexcept { return nodes_; }
  [[nodiscard]] bool is_over() const noexcept {
    return job_.job().stage == job_stage::stopped;
  }
  /// Returns how many of an instance's failures count still.
  [[nodiscard]] std::size_t counted_failures(std::size_t instance) const;
  /// Says for people, by instance, what each waits for, as it was concluded last; empty
  /// for what does not wait.
  [[nodiscard]] std::vector<std::string> what_waits_for() const {
    return scheduler_.what_waits_for(decided_);
  }
  /// Says for people why something waits; empty if nothing does.
  [[nodiscard]] const std::string& waits_for() const noexcept { return waits_for_; }

 private:
  /// What a controller is asked about.
  enum class loss : std::uint8_t {
    end,    ///< its process has ended
    limit,  ///< it was not ready in time, or stands still
    node,   ///< it is lost with its node
  };
  /// A failure about which a controller is asked.
  struct question {
    std::uint64_t incarnation = 0;
    std::size_t controller = 0;
    std::optional<recorded_time> until;  ///< once it is known to be asked
    std::optional<bool> is_handled;
    bool is_told = false;
    loss of = loss::end;
    std::string why;   ///< of a limit
    duration takes{};  ///< of a limit
  };

  void conclude_ends(recorded_time now);
  void conclude_end(std::size_t instance, const instance_exit& exit, recorded_time now);
  /// Returns whether a controller has to be heard first.
  [[nodiscard]] bool must_ask(std::size_t instance, recorded_time now,
                              loss of = loss::end);
  /// The whole job is started again where the controller that was asked has not said that
  /// it copes. Returns whether that is so.
  [[nodiscard]] bool is_declined(std::size_t instance, const std::string& why,
                                 duration takes, recorded_time now);
  /// A limit has passed, which takes that long. The controller is asked first.
  void pass_limit(std::size_t instance, std::string why, duration takes,
                  recorded_time now);
  void conclude_limits(recorded_time now);
  [[nodiscard]] std::optional<std::size_t> controller_of(std::size_t instance) const;
  void lose_absent_nodes(recorded_time now);
  void end_what_is_never_ready(recorded_time now);
  void end_what_stands(recorded_time now);
  [[nodiscard]] bool lacks_workers(std::size_t instance) const;
  void end_what_sessions_lost(recorded_time now);
  /// The workers of a session have nothing to do once its controller has ended for good.
  void end_with_controllers();
  void place(recorded_time now);
  void note_lacking(bool are_there, recorded_time now);
  void conclude_stage(recorded_time now);
  /// Returns whether anything of the job still lives, or may.
  [[nodiscard]] bool has_living(recorded_time now) const;
  /// Returns whether what was on that node is gone with it.
  [[nodiscard]] bool is_gone(const node_view* node, recorded_time now) const noexcept;
  void conclude_end_of(const heard_end& end, recorded_time now);
  void drop_old_questions(recorded_time now);
  /// Returns whether it is recorded to run on a node that is gone, or has another agent.
  [[nodiscard]] bool is_lost_with_node(std::size_t instance, recorded_time now) const;
  void order_about_running(std::size_t instance, std::vector<agent_order>& all);
  void order_about_report(node_view& view, const std::string& node, std::size_t instance,
                          const instance_report& report, std::vector<agent_order>& all);

  job_context job_;
  const manager_limits limits_;
  const instance_regions regions_;
  node_views nodes_;
  failover_coordinator failover_;
  job_scheduler scheduler_;
  const recorded_time began_;
  recorded_time decided_ = 0;  ///< when it was concluded last
  std::optional<recorded_time> unplaced_since_;
  std::map<std::size_t, recorded_time> lacking_since_;  // by what lost its place
  std::uint64_t unplaced_in_ = 0;              ///< which start of the job that is about
  std::map<std::size_t, question> questions_;  // by the instance that failed
  /// Since when a running incarnation is awaited to be ready.
  std::map<std::size_t, std::pair<std::uint64_t, recorded_time>> unready_;
  /// How far an incarnation is, and since when.
  struct advance {
    std::uint64_t incarnation = 0;
    std::uint64_t progress = 0;
    recorded_time since = 0;
    bool lacked = false;  ///< a controller lacked workers
  };
  std::map<std::size_t, advance> advances_;
  std::map<std::size_t, session_loss> lost_to_sessions_;  // by the worker
  std::string waits_for_;
  bool is_again_due_ = false;  ///< what was concluded has to be written first
};

}  // namespace manyworlds::inline v0::detail
