// Node workers: the workers of one node through all attempts of a job.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launch/attempt_store.hpp"
#include "launch/job_notice.hpp"
#include "launch/job_records.hpp"
#include "launch/worker_group.hpp"
#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/launch/launch_agent.hpp"
#include "manyworlds/launch/round.hpp"

namespace manyworlds::inline v0::detail {

/// Obeys the orders of a round's leader: starts the group of an attempt once that of the
/// attempt before has ended, and ends it.
///
/// Thread: the runtime's reactor. Lifetime: what it is made with outlives it.
class node_workers {
 public:
  struct listener {
    /// The report has changed.
    std::function<void()> changed;
    /// Returns whether workers may still be started.
    std::function<bool()> may_start;
  };
  using reports_t = std::map<std::string, node_report>;

  node_workers(runtime& rt, const launch_options& job, job_records& records,
               attempt_store& store, listener to);
  node_workers(const node_workers&) = delete;
  node_workers& operator=(const node_workers&) = delete;

  /// Makes the folder of the run. Workers run, and are shown, in the scope. Lifetime:
  /// nothing else is called after the scope's end, but `drop`.
  void begin(scope& s);
  /// Ends what workers have left.
  void drop() noexcept { group_.reset(); }

  /// Takes the round that orders are of from now on, this node's id, and the leader's.
  /// Lifetime: the round stays until the next call.
  void enter(const round& in, const std::string& self, const std::string& leader);
  /// Does what is ordered, by what all nodes have said.
  void obey(const job_orders& orders, const reports_t& reports);

  void stop(int signal, group_end why);
  /// Does the same, and waits until none lives.
  [[nodiscard]] task<void> end(int signal, group_end why);
  void kill() noexcept;
  /// Ends the wait for a console that takes nothing.
  void stop_showing() noexcept;
  /// Forgets the attempt that has ended: it may be ordered again, in another place.
  void forget();

  /// Ends when the workers have succeeded, and those of other nodes take too long.
  [[nodiscard]] task<void> until_barrier_ends();
  /// Returns the results of all nodes, by that store. Errors: store_error.
  [[nodiscard]] task<std::vector<std::string>> results(std::string store);

  /// Returns whether there are workers, or were in the last attempt.
  [[nodiscard]] bool has_any() const noexcept { return group_ != nullptr; }
  [[nodiscard]] bool is_ending() const noexcept;
  [[nodiscard]] pid_t pid_of(int rank) const noexcept;
  /// Returns the report. What it says of the node, and not of its workers, is the
  /// caller's to set.
  [[nodiscard]] node_report& report() noexcept { return report_; }
  [[nodiscard]] const node_report& report() const noexcept { return report_; }

 private:
  [[nodiscard]] bool is_leading() const noexcept { return leader_ == self_; }
  void end_because(const std::string& node, const worker_failure& f);
  [[nodiscard]] task<void> start_attempt(job_orders ordered, std::uint64_t number);
  void tell_start(const job_orders& ordered);
  void make_group(const job_orders& ordered);
  [[nodiscard]] task<void> share_results(const worker_group& of, std::string address);
  void tell(const std::string& line) const {
    if (job_.told) job_.told(line);
  }

  runtime& runtime_;
  const launch_options& job_;
  attempt_store& store_;
  const listener listener_;
  shared_output output_;
  const round* round_ = nullptr;
  std::string self_;
  std::string leader_;
  /// The last attempt that was ordered to start.
  std::uint64_t ordered_ = 0;
  std::uint64_t told_ = 0;  ///< restarts
  node_report report_;
  std::shared_ptr<worker_group> group_;
  event has_ended_;
  event begins_;
};

}  // namespace manyworlds::inline v0::detail
