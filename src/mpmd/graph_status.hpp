// Graph status: how a job stands, as its master tells those who ask.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "mpmd/job_manager.hpp"

namespace manyworlds::inline v0::detail {

/// Puts together what is told, in JSON, and keeps the last events.
class graph_status {
 public:
  /// Goes on from what a master before has told of the same job: its events stay, and
  /// what differs from that is news. What is no status is ignored.
  void go_on_from(const std::string& told, const job_context& job);
  /// Notes that something has happened; the last 256 events are kept.
  void note(recorded_time when, std::string what);
  /// Notes what differs from the last call, or from what was gone on from: stages,
  /// incarnations, ends.
  void note_changes(const job_manager& manager, recorded_time now);

  /// Returns the whole as JSON: "job", "number", "term", "stage", "exit_code", "why",
  /// "waits_for", "job_restarts", "nodes", "instances", "edges", and "events" with the
  /// number of "events_before" them.
  [[nodiscard]] std::string text(const job_manager& manager, std::uint64_t term) const;

 private:
  struct seen {
    std::uint64_t incarnation = 0;
    instance_phase phase = instance_phase::idle;
    bool is_ready = false;
  };
  std::size_t dropped_ = 0;
  std::deque<std::pair<recorded_time, std::string>> events_;
  std::vector<seen> seen_;  // by instance
  std::string stage_;
  std::uint64_t restarts_ = 0;
};

}  // namespace manyworlds::inline v0::detail
