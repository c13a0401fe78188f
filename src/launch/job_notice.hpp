// Job notice: what the agents of a job tell each other, each all of it with each change.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launch/worker_testimony.hpp"
#include "manyworlds/launch/worker_failure.hpp"

namespace manyworlds::inline v0::detail {

/// Counts the processes that have held a rank within an attempt, from 1.
using incarnation_t = std::uint64_t;

/// Why a node has asked for another round than the one that it was in.
enum class round_end : std::uint8_t {
  none,  ///< it was in none
  lost,  ///< a node was lost
  left,  ///< a node left, or came
};

/// What one node says of its workers.
struct node_report {
  /// The attempt of the workers that it has, or had last; 0 if there was none.
  std::uint64_t attempt = 0;
  /// The first rank and the number of all ranks, as its workers of that attempt know
  /// them.
  std::int32_t first_rank = 0;
  std::int32_t world_size = 0;
  /// The node that serves the store of that attempt.
  std::string leader;
  /// The restarts that it has heard of, and those that count still.
  std::uint64_t restarts = 0;
  std::uint64_t recent_restarts = 0;
  round_end before = round_end::none;
  /// No worker of the attempt lives here.
  bool has_ended = false;
  /// All of them have exited with 0.
  bool is_done = false;
  /// They are told to end.
  bool is_ending = false;
  /// It drains: what fails from now on fails because of that.
  bool drains = false;
  /// It leaves: it has heard how the job ends, or has waited long enough for that.
  bool leaves = false;
  /// Its failures of the attempt that cannot be mended by a replacement.
  std::vector<worker_failure> failures;
  /// The incarnations of its ranks: those that run, or that it asks for.
  std::map<std::int32_t, incarnation_t> incarnations;
  /// What its workers of the attempt tell of those of other nodes, and the verdicts on
  /// its own.
  std::vector<worker_testimony> testimonies;
  std::vector<told_verdict> verdicts;
};

/// Says how a job has ended.
enum class job_verdict : std::uint8_t { none, success, failure };

/// What the leader of a round has decided.
struct job_orders {
  /// The attempt that is to run; 0 until all nodes of the round have reported.
  std::uint64_t attempt = 0;
  /// Its store, for all nodes. Empty: workers of the attempts before are to end first.
  std::string store;
  std::uint64_t restarts = 0;
  std::uint64_t recent_restarts = 0;
  job_verdict verdict = job_verdict::none;
  /// Incarnations that may start; of other ranks the first one.
  std::map<std::int32_t, incarnation_t> granted;
  /// Ranks that are not replaced: no restarts are left.
  std::set<std::int32_t> denied;
  /// The failures of the attempt; the first is the root cause (rule L-e).
  std::vector<worker_failure> failures;
  /// What has ended the job, if it was no worker.
  std::string cause;

  friend bool operator==(const job_orders&, const job_orders&) = default;
};

/// The most ranks that a notice tells of.
inline constexpr std::size_t most_told_ranks = 4096;

/// One node's notice; orders are the leader's.
struct job_notice {
  node_report report;
  std::optional<job_orders> orders;

  /// Returns at most 256 KiB: long call stacks are cut, and of many failures,
  /// testimonies and verdicts the first are told.
  [[nodiscard]] std::string encode() const;
  /// Errors: wire_error.
  [[nodiscard]] static job_notice decode(std::string_view text);
};

}  // namespace manyworlds::inline v0::detail
