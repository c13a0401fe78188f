// Job context: what a job should be. It is recorded before anything is done by it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "manyworlds/mpmd/job_graph.hpp"
#include "manyworlds/mpmd/job_placement.hpp"
#include "mpmd/context_store.hpp"
#include "mpmd/instance_report.hpp"

namespace manyworlds::inline v0::detail {

enum class job_stage : std::uint8_t {
  starting,  ///< not all instances of the start have been ready at once yet
  running,
  stopping,  ///< everything is told to end
  stopped,   ///< nothing is left of it
};

/// What should be with an instance.
enum class instance_phase : std::uint8_t {
  idle,     ///< it is not wanted
  waiting,  ///< its next incarnation starts when it may
  running,  ///< this incarnation runs, or is being started
  ended,    ///< its last incarnation has ended, and no other follows
};

[[nodiscard]] std::string_view name_of(job_stage stage) noexcept;
[[nodiscard]] std::string_view name_of(instance_phase phase) noexcept;
[[nodiscard]] std::optional<instance_phase> phase_named(std::string_view name) noexcept;

/// Milliseconds since 1970, by the clock of the master that recorded them. They measure
/// windows of budgets; what came first is said by the order of records alone (law G-e).
using recorded_time = std::int64_t;

struct instance_record {
  instance_phase phase = instance_phase::idle;
  /// The number of the newest incarnation; 0 before the first.
  std::uint64_t incarnation = 0;
  /// Where it runs, or ran last; without a node where it has yet to be placed.
  instance_place place;
  /// Where an earlier incarnation may end still, while all wait for the job's restart:
  /// the next master has to hear of that node before it gives out places.
  std::string left_on;
  /// The process of the agent that was to start it: another one on that node knows
  /// nothing of it, and its processes are gone with it (law G-a).
  std::string agent;
  /// Where other nodes reached the node of its last start; empty if its agent did not
  /// say.
  std::string address;
  /// The next incarnation starts not earlier.
  recorded_time not_before = 0;
  /// The restarts of the whole job that it has taken part in. A master may die between
  /// the record of a restart and those of all instances; the next one makes up for it.
  std::uint64_t generation = 0;
  /// Until when each failure counts that was charged to it: those that were still
  /// counted as the last one was added.
  std::vector<recorded_time> failures;
  /// Of the last incarnation that ended.
  std::optional<instance_exit> exit;
  /// Why the last one that failed, or was ended for others, is over; for people. Empty
  /// once one has ended in order and was not to be started again.
  std::string why;

  /// It is placed anew before its next start.
  void lose_place() noexcept {
    place.node.clear();
    agent.clear();
  }
  /// Returns whether it has done what it was to do. One that was given up has not, also
  /// if its last end was in order: then `why` says for what.
  [[nodiscard]] bool has_ended_well() const noexcept {
    return phase == instance_phase::ended && exit && exit->is_success() && why.empty();
  }

  friend bool operator==(const instance_record&, const instance_record&) = default;
};

struct job_record {
  job_stage stage = job_stage::starting;
  /// Of the whole job, once it is stopping.
  int exit_code = 0;
  /// Why it is stopping, or, while it starts again, why it does; for people.
  std::string why;
  /// Until when each restart of the whole job counts, as above.
  std::vector<recorded_time> restarts;
  std::uint64_t restart_count = 0;
  /// Whether the instances of the start have their places.
  bool is_placed = false;
  /// Drawn when the job began: tells it from other jobs of its name.
  std::uint64_t number = 0;
  /// Of a job that is over: all agents have heard it, and are gone.
  bool is_told = false;

  friend bool operator==(const job_record&, const job_record&) = default;
};

/// The job as it should be, with what of it has yet to be written.
///
/// Rows: "graph", "job", "instance/decode.1", and "fact/decode.1/KEY" for what a workload
/// has recorded. Instances have dense numbers, by roles as they stand in the graph; a
/// role has as many as its `max`.
class job_context {
 public:
  /// Begins a job. Precondition: `graph.check()` finds nothing.
  explicit job_context(job_graph graph);
  /// Takes over what a store has kept. Errors: context_error (`damaged`) naming the row.
  explicit job_context(const context_values& rows);

  [[nodiscard]] const job_graph& graph() const noexcept { return graph_; }
  [[nodiscard]] const job_record& job() const noexcept { return job_; }
  [[nodiscard]] std::size_t size() const noexcept { return ids_.size(); }
  [[nodiscard]] const instance_id& id(std::size_t n) const { return ids_[n]; }
  [[nodiscard]] const graph_role& role_of(std::size_t n) const {
    return graph_.roles()[role_numbers_[n]];
  }
  [[nodiscard]] std::size_t role_number(std::size_t n) const { return role_numbers_[n]; }
  [[nodiscard]] const instance_record& at(std::size_t n) const { return records_[n]; }
  [[nodiscard]] std::optional<std::size_t> find(const instance_id& id) const;
  /// Returns the numbers of the instances of a role.
  [[nodiscard]] std::pair<std::size_t, std::size_t> range_of(std::size_t role) const {
    return {first_of_role_[role], first_of_role_[role + 1]};
  }
  /// Returns the number of the controller of a worker of a session; nothing for others.
  [[nodiscard]] std::optional<std::size_t> session_controller_of(std::size_t n) const {
    const bool is_worker = role_of(n).kind == role_kind::spmd && id(n).index > 0;
    if (!is_worker) return std::nullopt;
    return range_of(role_number(n)).first;
  }
  /// Returns what the instance has recorded of itself.
  [[nodiscard]] const std::map<std::string, std::string>& facts(std::size_t n) const {
    return facts_[n];
  }

  /// Returns the record, to be changed; it is written with the next changes.
  [[nodiscard]] instance_record& change(std::size_t n);
  [[nodiscard]] job_record& change_job() noexcept {
    is_job_changed_ = true;
    return job_;
  }
  /// Returns the record of an instance by which others change. It is written behind them:
  /// until then its end or loss is not recorded, and is concluded from again.
  [[nodiscard]] instance_record& change_last(std::size_t n) {
    last_.insert(n);
    return change(n);
  }
  /// Lets the instances of the start wait for their next one, without places.
  void begin_again(recorded_time not_before);
  /// Takes a fact of up to 64 KiB; an instance has at most 64 of them, and 1 MiB, and a
  /// job 24 MiB. Returns false if it is too large, or one too many.
  bool record_fact(std::size_t n, std::string key, std::string value);

  /// Returns what has changed since the last call, to be written in this order: in one
  /// transaction where a store takes that much, and otherwise in several, between which
  /// the master may die.
  [[nodiscard]] std::vector<context_write> take_changes();
  [[nodiscard]] bool has_changes_of_job() const noexcept {
    return is_new_ || is_job_changed_;
  }
  [[nodiscard]] bool has_changes() const noexcept {
    return is_new_ || is_job_changed_ || !changed_.empty() || !new_facts_.empty();
  }

 private:
  void number_instances();
  void keep_fact(std::size_t n, std::string key, std::string value);

  job_graph graph_;
  job_record job_;
  std::vector<instance_id> ids_;
  std::vector<std::size_t> role_numbers_;   // by instance
  std::vector<std::size_t> first_of_role_;  // by role, and one behind
  std::vector<instance_record> records_;
  std::vector<std::map<std::string, std::string>> facts_;
  std::size_t fact_bytes_ = 0;  ///< of all of them, with their keys
  bool is_new_ = false;
  bool is_job_changed_ = false;
  std::set<std::size_t> changed_;
  std::set<std::size_t> last_;
  std::vector<context_write> new_facts_;
};

/// Says for people that a master's graph is not that of the job which is there.
[[nodiscard]] std::string of_another_graph(const job_context& job,
                                           std::string_view where);

}  // namespace manyworlds::inline v0::detail
