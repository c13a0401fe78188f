// Job records: hands events and metrics of a job to its sinks, and knows what torchrun
// records.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "launch/job_status.hpp"
#include "launch/worker_report.hpp"
#include "manyworlds/coro/worker_thread.hpp"
#include "manyworlds/launch/exit_reason.hpp"
#include "manyworlds/launch/job_events.hpp"
#include "manyworlds/launch/launch_agent.hpp"
#include "manyworlds/launch/round.hpp"
#include "manyworlds/time.hpp"

namespace manyworlds::inline v0::detail {

/// Returns the kind of sink that a name, with what is behind its colon, means. Errors:
/// std::invalid_argument naming it and those that are known.
[[nodiscard]] make_job_sink kind_of_sink(const std::string& name);

/// A worker, as its events name it.
struct recorded_worker {
  int rank = 0;
  int local_rank = 0;
  pid_t pid = 0;
};

/// Records what happens in a job. Sinks are called on a thread of its own, in the order
/// of the calls; one that is far behind loses what comes then, and the last line says so.
///
/// Thread: the reactor's. The destructor waits until all is taken.
class job_records {
 public:
  using teller = std::function<void(const std::string&)>;

  /// Errors: std::invalid_argument naming a sink that is not known. Lifetime: the job
  /// outlives it.
  job_records(const launch_options& job, std::string host, time_point now);
  job_records(const job_records&) = delete;
  job_records& operator=(const job_records&) = delete;
  ~job_records();

  /// Makes the sinks. Before it nothing is recorded.
  void begin(const std::string& folder, teller told);
  void emit(job_event event);
  void put_metric(std::string name, double value, std::string group = "torchelastic");

  /// A round is agreed, which took this time. `self` is this node in it.
  void note_round(const round& r, const round_node& self, std::string_view backend,
                  duration took);
  void note_start(const recorded_worker& w);
  /// `was_ended` says that it has not ended by itself.
  void note_end(const recorded_worker& w, const exit_reason& end, bool was_ended);
  /// A worker has reported an event, a metric, or how long something took.
  void note_report(int rank, const worker_report& what);
  /// All workers of this node are started.
  void note_attempt();
  /// Those of the whole job so far.
  void note_restarts(std::size_t count);
  /// All workers are ended, for this reason.
  void note_ending(const std::string& why) { status_->note_ending(why); }
  /// The job has ended. Called once.
  void note_result(const launch_result& result, time_point now);
  /// How the job stands, by all that was noted.
  [[nodiscard]] const std::shared_ptr<job_status>& status() noexcept { return status_; }

 private:
  struct message;
  [[nodiscard]] job_event event_of(std::string_view state, event_source source) const;
  void add_worker(job_event& event, const recorded_worker& w,
                  std::optional<int> code) const;
  [[nodiscard]] double restarts_left() const;
  void put_worker_metric(std::string_view name, double value);
  void post(std::unique_ptr<message> what);

  const launch_options& job_;
  const std::string host_;
  const time_point began_;
  const std::shared_ptr<job_status> status_;
  const make_job_sink events_kind_;
  const make_job_sink metrics_kind_;
  std::shared_ptr<job_sink> events_;
  std::shared_ptr<job_sink> metrics_;
  round_node self_;
  std::size_t nodes_ = 1;
  std::string backend_;
  std::map<int, pid_t> started_;  ///< by rank, the last one of which that was recorded
  std::size_t restarts_ = 0;
  duration ran_{0};
  std::atomic<std::size_t> waiting_{0};
  std::size_t dropped_ = 0;
  /// On the sinks' thread, until it has ended.
  std::size_t failed_ = 0;
  std::string why_failed_;
  teller told_;
  std::unique_ptr<worker_thread> thread_;  ///< where there is a sink
};

}  // namespace manyworlds::inline v0::detail
