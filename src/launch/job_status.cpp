#include "launch/job_status.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace manyworlds::inline v0::detail {

namespace {

/// Verdicts are told in the log; a dump has the last.
constexpr std::size_t most_verdicts_kept = 16;

}  // namespace

void job_status::note_waiting(time_point limit) {
  const std::lock_guard lock(mutex_);
  state_.workers.clear();
  ending_.clear();
  wait_limit_ = limit;
}

void job_status::note_round(const round& r, const round_node& self) {
  const std::lock_guard lock(mutex_);
  state_.round = r.number;
  state_.nodes = r.nodes.size();
  state_.node = self.rank;
  state_.size = r.size();
}

void job_status::note_attempt(const round_node& self) {
  const std::lock_guard lock(mutex_);
  state_.workers.clear();
  ending_.clear();
  for (int i = 0; i < self.slots; ++i)
    state_.workers.push_back({self.first_rank + i, 0, 0, "starts"});
}

void job_status::note_start(int rank, pid_t pid) {
  const std::lock_guard lock(mutex_);
  for (job_worker_report& each : state_.workers) {
    if (each.rank == rank) each = {rank, pid, each.starts + 1, "runs"};
  }
}

void job_status::note_end(int rank, const std::string& how, bool is_success) {
  const std::lock_guard lock(mutex_);
  for (job_worker_report& each : state_.workers) {
    if (each.rank == rank) each.state = is_success ? "succeeded" : how;
  }
}

void job_status::note_restarts(std::size_t count) {
  const std::lock_guard lock(mutex_);
  state_.restarts = count;
}

void job_status::note_ending(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (ending_.empty()) ending_ = why;
}

void job_status::note_verdict(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (state_.verdicts.size() == most_verdicts_kept)
    state_.verdicts.erase(state_.verdicts.begin());
  state_.verdicts.push_back(text);
}

std::size_t job_status::count_of(std::string_view state) const {
  return static_cast<std::size_t>(
      std::count_if(state_.workers.begin(), state_.workers.end(),
                    [state](const job_worker_report& w) { return w.state == state; }));
}

health job_status::answer(time_point now) const {
  const std::lock_guard lock(mutex_);
  if (!ending_.empty()) return {false, ending_};
  if (state_.workers.empty()) {
    const bool is_in_time = now < wait_limit_;
    return {is_in_time, is_in_time ? "the job waits for its nodes"
                                   : "the job's nodes have not come in time"};
  }
  return {true, fmt::format("round {}: of {} workers {} run, {} start, {} succeeded; "
                            "{} restarts",
                            state_.round, state_.workers.size(), count_of("runs"),
                            count_of("starts"), count_of("succeeded"), state_.restarts)};
}

job_report job_status::report() const {
  const std::lock_guard lock(mutex_);
  job_report now = state_;
  now.ending = ending_;
  return now;
}

}  // namespace manyworlds::inline v0::detail
