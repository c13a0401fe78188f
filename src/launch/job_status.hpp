// Job status: how a job stands, for probes and dumps.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "launch/health_endpoint.hpp"
#include "manyworlds/launch/round.hpp"
#include "manyworlds/time.hpp"
#include "observe/report.hpp"

namespace manyworlds::inline v0::detail {

/// Is told by the agent what it decides. Thread: the reactor's; `report` any.
class job_status {
 public:
  explicit job_status(std::string run) { state_.run = std::move(run); }

  /// The job has no workers before other nodes have come, until that time.
  void note_waiting(time_point limit);
  void note_round(const round& r, const round_node& self);
  /// All workers of this node are started.
  void note_attempt(const round_node& self);
  void note_start(int rank, pid_t pid);
  void note_end(int rank, const std::string& how, bool is_success);
  void note_restarts(std::size_t count);
  /// All workers are ended for this reason.
  void note_ending(const std::string& why);
  void note_verdict(const std::string& text);

  [[nodiscard]] health answer(time_point now) const;
  [[nodiscard]] job_report report() const;

 private:
  [[nodiscard]] std::size_t count_of(std::string_view state) const;

  mutable std::mutex mutex_;
  job_report state_;
  std::string ending_;
  time_point wait_limit_ = time_point::max();
};

}  // namespace manyworlds::inline v0::detail
