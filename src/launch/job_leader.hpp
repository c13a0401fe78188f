// Job leader: decides on the workers of a round. Without I/O, threads or clocks.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "launch/job_notice.hpp"
#include "launch/restart_tally.hpp"
#include "manyworlds/launch/launch_agent.hpp"
#include "manyworlds/launch/round.hpp"

namespace manyworlds::inline v0::detail {

/// The agent of the round's first node decides, since the store of the attempt ends with
/// it in any case. Its rules:
///
/// - Nothing starts before all nodes of the round have reported. Then the next attempt
///   starts, or the one that runs goes on: under `restart_scope::worker`, if all ranks
///   are as before. The ranks of a node that came for another start again there.
/// - A rank that failed gets another incarnation, if a restart is left.
/// - What cannot be mended so ends the attempt. The next one starts when no worker lives
///   (rule L-a) and if a restart is left (rule L-b); otherwise the job has failed.
/// - The job has succeeded when all workers have exited with 0.
class job_leader {
 public:
  /// `self` is the id of this node. Lifetime: the tally outlives it.
  job_leader(const round& r, std::string self, restart_scope scope, restart_tally& tally);

  /// Takes what the nodes of the round have said last, and decides. Returns whether the
  /// orders have changed.
  bool hear(const std::map<std::string, node_report>& reports, time_point now);
  /// Takes what this node has ordered in rounds before, if it led them: that may go on,
  /// unless its store is empty.
  void recall(job_orders before) { before_ = std::move(before); }
  /// Returns the last attempt's orders, also those of a round before.
  [[nodiscard]] const job_orders& last_orders() const noexcept {
    return orders_.attempt > 0 ? orders_ : before_;
  }
  /// The attempt that was ordered may start, and has no store yet.
  [[nodiscard]] bool needs_store() const noexcept {
    return are_all_idle_ && orders_.attempt > 0 && orders_.store.empty() &&
           orders_.verdict == job_verdict::none;
  }
  void set_store(std::string address) { orders_.store = std::move(address); }
  /// Ends the job for a reason that no worker has given.
  void give_up(std::string cause);
  [[nodiscard]] const job_orders& orders() const noexcept { return orders_; }
  /// Says whether all others leave.
  [[nodiscard]] bool have_left(
      const std::map<std::string, node_report>& reports) const noexcept;

 private:
  using reports_t = std::map<std::string, node_report>;

  void begin(const reports_t& reports, time_point now);
  [[nodiscard]] bool can_go_on(const reports_t& reports) const;
  void go_on(const reports_t& reports);
  void replace(const reports_t& reports, time_point now);
  void gather_failures(const reports_t& reports);
  void judge(const reports_t& reports, time_point now);
  [[nodiscard]] bool are_all(const reports_t& reports, bool node_report::*what) const;
  [[nodiscard]] static bool is_ours(const round_node& node);

  const round round_;
  const std::string self_;
  const restart_scope scope_;
  restart_tally& tally_;
  job_orders before_;
  /// No worker of an attempt before the ordered one lives.
  bool are_all_idle_ = false;
  job_orders orders_;
};

}  // namespace manyworlds::inline v0::detail
