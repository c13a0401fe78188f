#include "launch/job_leader.hpp"

#include <algorithm>
#include <utility>

#include "launch/torchrun_keys.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

job_leader::job_leader(const round& r, std::string self, restart_scope scope,
                       restart_tally& tally)
    : round_(r), self_(std::move(self)), scope_(scope), tally_(tally) {
  MW_ASSERT(round_.find(self_), "the leader is a node of its round");
}

/// Nodes without an agent of this library report nothing.
bool job_leader::is_ours(const round_node& node) {
  return !node.id.starts_with(torchrun_id);
}

bool job_leader::are_all(const reports_t& reports, bool node_report::*what) const {
  return std::all_of(
      round_.nodes.begin(), round_.nodes.end(), [&](const round_node& node) {
        if (!is_ours(node)) return true;
        const auto found = reports.find(node.id);
        return found != reports.end() && found->second.attempt == orders_.attempt &&
               found->second.*what;
      });
}

bool job_leader::hear(const reports_t& reports, time_point now) {
  const job_orders before = orders_;
  for (const auto& [node, said] : reports)
    tally_.note(said.restarts, said.recent_restarts, now);
  const bool are_all_here =
      std::all_of(round_.nodes.begin(), round_.nodes.end(), [&](const round_node& node) {
        return !is_ours(node) || reports.contains(node.id);
      });
  if (!are_all_here || orders_.verdict != job_verdict::none) return false;
  if (orders_.attempt == 0) {
    begin(reports, now);
  } else {
    replace(reports, now);
    gather_failures(reports);
    judge(reports, now);
  }
  are_all_idle_ = std::all_of(reports.begin(), reports.end(), [&](const auto& each) {
    const node_report& said = each.second;
    return said.attempt == 0 || said.attempt >= orders_.attempt || said.has_ended;
  });
  orders_.restarts = tally_.total();
  orders_.recent_restarts = tally_.recent(now);
  return orders_ != before;
}

/// Decides on the first attempt of the round.
void job_leader::begin(const reports_t& reports, time_point now) {
  std::uint64_t last = 0;
  bool is_one_lost = false;
  bool has_failed = false;
  for (const auto& [node, said] : reports) {
    last = std::max(last, said.attempt);
    is_one_lost |= said.before == round_end::lost;
    has_failed |= !said.failures.empty();
  }
  const bool goes_on = can_go_on(reports);
  // A restart that was ordered, and has begun nowhere, was counted then.
  const bool is_counted = before_.attempt > last;
  const bool is_restart = is_one_lost || (has_failed && !is_counted);
  if (is_restart && !tally_.take(now)) {
    orders_.attempt = last;
    gather_failures(reports);
    give_up(is_one_lost ? "a node was lost, and no restarts are left" : "");
    return;
  }
  if (goes_on) {
    go_on(reports);
  } else {
    // Nodes that were lost may have begun one of which no other has heard.
    orders_.attempt = std::max(last + 1, round_.number);
  }
}

/// The attempt before this round goes on if its store is here, all ranks stay, and no
/// node ends its workers.
bool job_leader::can_go_on(const reports_t& reports) const {
  if (scope_ != restart_scope::worker || before_.store.empty()) return false;
  const int size = round_.size();
  return std::all_of(
      round_.nodes.begin(), round_.nodes.end(), [&](const round_node& node) {
        if (!is_ours(node)) return false;
        const node_report& said = reports.at(node.id);
        // A node that has no workers takes those of one that was lost.
        if (said.attempt != before_.attempt) return node.id != self_;
        return (said.is_done || !(said.has_ended || said.is_ending)) &&
               said.failures.empty() && said.first_rank == node.first_rank &&
               said.world_size == size && said.leader == self_;
      });
}

void job_leader::go_on(const reports_t& reports) {
  orders_ = before_;
  for (const round_node& node : round_.nodes) {
    if (reports.at(node.id).attempt == orders_.attempt) continue;
    for (int rank = node.first_rank; rank < node.first_rank + node.slots; ++rank) {
      const auto [at, is_first] = orders_.granted.try_emplace(rank, 1);
      ++at->second;
      orders_.denied.erase(rank);
    }
  }
}

/// Lets ranks that have failed start again.
void job_leader::replace(const reports_t& reports, time_point now) {
  for (const auto& [node, said] : reports) {
    const round_node* const place = round_.find(node);
    if (said.attempt != orders_.attempt || !place) continue;
    for (const auto& [rank, incarnation] : said.incarnations) {
      if (rank < place->first_rank || rank >= place->first_rank + place->slots) continue;
      const auto granted = orders_.granted.find(rank);
      const incarnation_t held = granted == orders_.granted.end() ? 1 : granted->second;
      if (incarnation <= held || orders_.denied.contains(rank)) continue;
      const bool is_told = orders_.granted.size() < most_told_ranks;
      if (is_told && tally_.take(now)) {
        orders_.granted[rank] = incarnation;
      } else if (orders_.denied.size() < most_told_ranks) {
        // One of them ends the attempt.
        orders_.denied.insert(rank);
      }
    }
  }
}

/// The order of failures is that in which their nodes told them (rule L-e).
void job_leader::gather_failures(const reports_t& reports) {
  for (const auto& [node, said] : reports) {
    if (said.attempt != orders_.attempt) continue;
    for (const worker_failure& f : said.failures) {
      const bool is_known = std::any_of(
          orders_.failures.begin(), orders_.failures.end(), [&](const worker_failure& k) {
            return k.rank == f.rank && k.reason.pid == f.reason.pid;
          });
      if (!is_known) orders_.failures.push_back(f);
    }
  }
}

/// Decides what follows an attempt that ends.
void job_leader::judge(const reports_t& reports, time_point now) {
  if (are_all(reports, &node_report::is_done)) {
    orders_.verdict = job_verdict::success;
    return;
  }
  if (orders_.failures.empty() || !are_all(reports, &node_report::has_ended)) return;
  // A node that drains ends the round, and what fails meanwhile fails because of it.
  const bool drains = std::any_of(reports.begin(), reports.end(),
                                  [](const auto& each) { return each.second.drains; });
  if (drains) return;
  const bool could_start = orders_.failures.front().reason.kind != exit_kind::not_started;
  const bool are_all_ours =
      std::all_of(round_.nodes.begin(), round_.nodes.end(), &job_leader::is_ours);
  const bool are_all_here =
      std::none_of(reports.begin(), reports.end(),
                   [](const auto& each) { return each.second.leaves; });
  if (could_start && are_all_ours && are_all_here && tally_.take(now)) {
    const std::uint64_t next = orders_.attempt + 1;
    orders_ = {};
    orders_.attempt = next;
  } else {
    orders_.verdict = job_verdict::failure;
  }
}

void job_leader::give_up(std::string cause) {
  if (orders_.verdict != job_verdict::none) return;
  orders_.verdict = job_verdict::failure;
  orders_.cause = std::move(cause);
}

bool job_leader::have_left(const reports_t& reports) const noexcept {
  return std::all_of(round_.nodes.begin(), round_.nodes.end(),
                     [&](const round_node& node) {
                       const auto found = reports.find(node.id);
                       return !is_ours(node) || node.id == self_ ||
                              (found != reports.end() && found->second.leaves);
                     });
}

}  // namespace manyworlds::inline v0::detail
