// Worker group: the workers of one node through one attempt.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launch/job_notice.hpp"
#include "launch/job_records.hpp"
#include "launch/log_follower.hpp"
#include "launch/restart_tally.hpp"
#include "launch/run_folder.hpp"
#include "launch/worker_result.hpp"
#include "launch/worker_watch.hpp"
#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/launch/launch_agent.hpp"
#include "manyworlds/launch/round.hpp"
#include "manyworlds/launch/supervised_process.hpp"

namespace manyworlds::inline v0::detail {

/// What the groups of a node share: the files of its run, the console that shows them,
/// and the records. Lifetime: the scope, in which files are followed, outlives its use.
struct shared_output {
  /// Of each worker, if they are bound.
  std::vector<std::vector<unsigned>> cpus;
  job_records* records = nullptr;
  std::unique_ptr<run_folder> folder;
  std::unique_ptr<console> shown_on;
  scope* showing = nullptr;
};

/// What a group is made with.
struct group_place {
  round nodes;
  std::string node;  ///< the id of this one
  std::uint64_t attempt = 1;
  std::uint64_t restarts = 0;  ///< before it
  /// The store, and how this node's workers reach it that cannot prove a secret.
  std::string store;
  std::string store_here;
  /// The first incarnation of a rank, where it is not 1.
  std::map<std::int32_t, incarnation_t> incarnations;
};

/// Says why a group is ended.
enum class group_end : std::uint8_t {
  failure,  ///< a worker of the attempt has failed: others may fail at the same time
  other,    ///< what fails from now on fails because of that
};

/// Starts the workers of a node, watches them, starts them again one by one where that
/// was asked for and granted, and ends them.
///
/// Thread: the runtime's reactor. Lifetime: what it is made with outlives it.
class worker_group {
 public:
  /// What it tells. Each is called on the reactor.
  struct listener {
    /// A worker has failed and is not replaced. The group ends itself.
    std::function<void(const worker_failure& failure)> failed;
    /// A rank asks for its next incarnation.
    std::function<void(std::int32_t rank, incarnation_t incarnation)> wants;
    /// The workers tell something else of those of other nodes.
    std::function<void(std::vector<worker_testimony> all)> testified;
    /// A worker is stuck.
    std::function<void(told_verdict verdict)> convicted;
    std::function<void(const std::string& line)> told;
  };

  worker_group(runtime& rt, const launch_options& job, shared_output& output,
               group_place place, listener to);
  worker_group(const worker_group&) = delete;
  worker_group& operator=(const worker_group&) = delete;

  /// Runs the workers, and ends when none lives. Precondition: called once.
  task<void> run();
  /// Ends all workers by that signal, and those that have not ended after the grace by
  /// SIGKILL, with all that they have started. The first call counts.
  void stop(int signal, group_end why);
  void kill() noexcept { to_kill_.set(); }
  [[nodiscard]] bool is_told_to_stop() const noexcept { return to_stop_.is_set(); }
  /// A rank may start that incarnation, or no further one.
  void grant(std::int32_t rank, incarnation_t incarnation);
  void deny(std::int32_t rank);
  /// Takes the testimonies and the verdicts in what all nodes say by now.
  void hear(const std::map<std::string, node_report>& all);

  [[nodiscard]] std::uint64_t attempt() const noexcept { return place_.attempt; }
  /// The first rank of this node's workers and the number of all.
  [[nodiscard]] int first_rank() const noexcept { return node_.first_rank; }
  [[nodiscard]] int world_size() const noexcept { return place_.nodes.size(); }
  /// Says whether all workers have exited with 0.
  [[nodiscard]] bool is_done() const noexcept;
  /// Returns what the workers have given, in the order of their ranks.
  [[nodiscard]] std::vector<std::string> results() const;
  /// Returns the process of a rank; 0 if none runs.
  [[nodiscard]] pid_t pid_of(int rank) const noexcept;

 private:
  struct worker {
    worker(int at, const launch_options& job)
        : local_rank(at),
          tally(job.max_restarts_per_rank.value_or(job.max_restarts),
                job.restart_window) {}

    const int local_rank;
    restart_tally tally;
    incarnation_t incarnation = 1;
    incarnation_t granted = 1;
    bool is_denied = false;
    bool is_done = false;
    exit_reason last_end;
    event decided;
    worker_files files;
    std::optional<worker_result> result;  ///< of this start
    std::string verdict;                  ///< on the process that runs, or has ended
    std::unique_ptr<supervised_process> process;
    std::vector<std::shared_ptr<log_follower>> followers;
  };

  [[nodiscard]] task<void> live(worker& w);
  [[nodiscard]] task<exit_reason> one_life(worker& w, time_point failed);
  [[nodiscard]] task<bool> replacement(worker& w, const exit_reason& end);
  [[nodiscard]] task<void> kill_descendants(worker& w);
  [[nodiscard]] task<void> record_start(worker& w);
  [[nodiscard]] task<void> stop_all_when_told();
  [[nodiscard]] task<void> put_down(worker& w);
  [[nodiscard]] task<void> write_dumps();

  [[nodiscard]] watch_options how_to_watch();
  [[nodiscard]] watched_start start_of(const worker& w, time_point failed) const;
  void give_up_on(int rank, const std::string& why);
  [[nodiscard]] process_options describe(worker& w);
  [[nodiscard]] std::string make_result(worker& w);
  void set_streams(worker& w, process_options& how);
  void follow(worker& w, const std::string& path, int to);
  [[nodiscard]] std::shared_ptr<const line_filter> filter_of(int to);
  void note_failure(const worker& w, const exit_reason& end,
                    const std::string& because = {});
  [[nodiscard]] worker* find(std::int32_t rank) noexcept;
  [[nodiscard]] int rank_of(const worker& w) const noexcept {
    return node_.first_rank + w.local_rank;
  }

  runtime& runtime_;
  const launch_options& job_;
  shared_output& output_;
  const group_place place_;
  const round_node node_;
  const listener listener_;
  worker_watch watch_;
  std::map<std::string, std::size_t> verdicts_heard_;  ///< by nodes
  std::set<int> to_dump_;
  event is_accusing_;
  std::shared_ptr<const line_filter> output_filter_;
  std::shared_ptr<const line_filter> errors_filter_;
  std::vector<std::unique_ptr<worker>> workers_;
  std::size_t living_ = 0;
  event none_lives_;
  event to_stop_;
  event to_kill_;
  int signal_ = 0;
  group_end why_ = group_end::failure;
};

/// Returns how a rank's process has ended, for people.
[[nodiscard]] std::string text_of_end(int rank, const exit_reason& end);
/// Returns the same of a failure; of a process that lives, why it cannot go on.
[[nodiscard]] std::string text_of_failed(const worker_failure& f);

}  // namespace manyworlds::inline v0::detail
