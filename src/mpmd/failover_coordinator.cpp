#include "mpmd/failover_coordinator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "duration_text.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

constexpr recorded_time shortest_pause = 50;
recorded_time pause_after(std::size_t failures) noexcept {
  recorded_time pause = shortest_pause;
  for (std::size_t n = 1; n < failures && pause < longest_pause; ++n) pause *= 2;
  return std::min(pause, longest_pause);
}

/// Forgets what no longer counts.
static void prune(std::vector<recorded_time>& until, recorded_time now) {
  std::erase_if(until, [&](recorded_time t) { return t <= now; });
}

/// Returns how long one of them counts: the budget's window, but long enough for one more
/// than the budget has, where each takes that long.
static duration counted_for(const retry_budget& budget, duration takes) noexcept {
  // What takes longer would not be seen to repeat, and the product stays in its bounds.
  constexpr duration longest = std::chrono::hours(24 * 7);
  return std::max(budget.per, std::min(takes, longest) * (budget.tries + 1));
}

static recorded_time end_of_count(recorded_time now, duration length) noexcept {
  return now + std::chrono::duration_cast<std::chrono::milliseconds>(length).count();
}

void failover_coordinator::failed(std::size_t instance, recorded_time now,
                                  const std::string& why, duration takes) {
  MW_ASSERT(!why.empty(), "what has failed has not ended well, and says so");
  instance_record& record = job_.change_last(instance);
  record.why = why;
  const graph_role& role = job_.role_of(instance);
  if (role.restarts == restart_when::never) {
    give_up(instance, now, why, takes);
    return;
  }
  const duration window = counted_for(role.budget, takes);
  prune(record.failures, now);
  record.failures.push_back(end_of_count(now, window));
  if (record.failures.size() > role.budget.tries) {
    const std::string told = fmt::format("{}; it has failed {} times within {}", why,
                                         record.failures.size(), duration_text(window));
    // The whole job fails so again when this instance has spent its budget again. Of
    // failures of both kinds those by a limit say how long that takes.
    const auto counts = std::chrono::milliseconds(
        *std::max_element(record.failures.begin(), record.failures.end()) - now);
    give_up(instance, now, told, counts > role.budget.per ? counts : duration::zero());
    return;
  }
  recover(instance, now + pause_after(record.failures.size()));
}

void failover_coordinator::cannot_start(std::size_t instance, const std::string& why) {
  instance_record& record = job_.change_last(instance);
  record.why = why;
  // At its start a job that lacks an instance would wait for it.
  const bool has_enough =
      end_region_of(instance) && job_.job().stage == job_stage::running;
  if (!has_enough) end_job(1, told_of(instance, why));
}

void failover_coordinator::lost_with_node(std::size_t instance, recorded_time now) {
  instance_record& record = job_.change_last(instance);
  record.lose_place();
  record.why = "its node is gone";
  recover(instance, now);
}

/// The next controller of a session needs all workers, also those that an earlier one has
/// let go, or that were given up. An instance that is no controller has none.
void failover_coordinator::bring_workers_back(std::size_t controller,
                                              recorded_time not_before) {
  const bool is_session = job_.role_of(controller).kind == role_kind::spmd;
  if (!is_session || job_.id(controller).index > 0) return;
  const auto [first, end] = job_.range_of(job_.role_number(controller));
  for (std::size_t n = first + 1; n < end; ++n) {
    if (job_.at(n).phase == instance_phase::ended) bring_worker_back(n, not_before);
  }
}

/// Whether it has left an earlier session or this one is not known here, so that it is
/// charged: otherwise one that leaves each time would come again without an end.
void failover_coordinator::worker_left(std::size_t worker, recorded_time now,
                                       const std::string& why) {
  const graph_role& role = job_.role_of(worker);
  if (role.restarts == restart_when::never) return;
  std::vector<recorded_time>& failures = job_.change(worker).failures;
  prune(failures, now);
  failures.push_back(end_of_count(now, counted_for(role.budget, {})));
  if (failures.size() > role.budget.tries) {
    restart_job(now, told_of(worker, fmt::format("{}; it has left {} times within {}",
                                                 why, failures.size(),
                                                 duration_text(role.budget.per))));
  } else {
    bring_worker_back(worker, now + pause_after(failures.size()));
  }
}

void failover_coordinator::bring_worker_back(std::size_t worker,
                                             recorded_time not_before) {
  instance_record& record = job_.change(worker);
  record.phase = instance_phase::waiting;
  record.lose_place();
  record.not_before = not_before;
  record.why = "its controller is started again";
}

void failover_coordinator::recover(std::size_t instance, recorded_time not_before) {
  for (const std::size_t n : regions_.of(instance)) {
    // A master may have died between the record of a controller and those of its workers.
    if (job_.at(n).phase == instance_phase::waiting) bring_workers_back(n, not_before);
    // One that has done its part does it again with the others: no world of all of them
    // would form otherwise. Its place may be another's by now.
    const bool has_ended = job_.at(n).has_ended_well();
    if (!has_ended && job_.at(n).phase != instance_phase::running) continue;
    instance_record& member = job_.change(n);
    if (has_ended) member.lose_place();
    if (n != instance)
      member.why = fmt::format("{} is started again", job_.id(instance).text());
    member.phase = instance_phase::waiting;
    member.not_before = std::max(member.not_before, not_before);
    bring_workers_back(n, not_before);
  }
}

std::size_t failover_coordinator::left_of(std::size_t role) const {
  const auto is_left = [this](std::size_t n) {
    const instance_record& record = job_.at(n);
    return record.has_ended_well() || record.phase == instance_phase::running ||
           record.phase == instance_phase::waiting;
  };
  const auto [first, end] = job_.range_of(role);
  // A session is nothing without its controller.
  if (job_.role_of(first).kind == role_kind::spmd && !is_left(first)) return 0;
  std::size_t left = 0;
  for (std::size_t n = first; n < end; ++n) left += is_left(n) ? 1 : 0;
  return left;
}

bool failover_coordinator::end_region_of(std::size_t instance) {
  bool has_enough = true;
  for (const std::size_t n : regions_.of(instance)) {
    instance_record& member = n == instance ? job_.change_last(n) : job_.change(n);
    const bool may_live = member.phase == instance_phase::running ||
                          member.phase == instance_phase::waiting;
    if (n != instance && may_live)
      member.why = fmt::format("{} was given up", job_.id(instance).text());
    if (n == instance || may_live) member.phase = instance_phase::ended;
  }
  for (const std::size_t n : regions_.of(instance))
    has_enough = has_enough && left_of(job_.role_number(n)) >= job_.role_of(n).counts.min;
  return has_enough;
}

void failover_coordinator::give_up(std::size_t instance, recorded_time now,
                                   const std::string& why, duration takes) {
  if (end_region_of(instance)) return;
  const graph_role& role = job_.role_of(instance);
  const std::string told = told_of(instance, why);
  if (role.restarts == restart_when::never) {
    const auto& exit = job_.at(instance).exit;
    end_job(exit && exit->shell_code() != 0 ? exit->shell_code() : 1, told);
  } else {
    restart_job(now, told, takes);
  }
}

std::string failover_coordinator::told_of(std::size_t instance,
                                          const std::string& why) const {
  return fmt::format("{} on node {}: {}", job_.id(instance).text(),
                     job_.at(instance).place.node, why);
}

void failover_coordinator::restart_job(recorded_time now, const std::string& why,
                                       duration takes) {
  job_record& job = job_.change_job();
  const retry_budget& budget = job_.graph().whole_job;
  const duration window = counted_for(budget, takes);
  prune(job.restarts, now);
  if (job.restarts.size() >= budget.tries) {
    end_job(1, fmt::format("{}; the job was started again {} times within {}", why,
                           job.restarts.size(), duration_text(window)));
    return;
  }
  job.restarts.push_back(end_of_count(now, window));
  ++job.restart_count;
  job.stage = job_stage::starting;
  job.why = why;
  job.is_placed = false;
  job_.begin_again(now + pause_after(job.restarts.size()));
}

void failover_coordinator::end_job(int exit_code, std::string why) {
  MW_ASSERT(job_.job().stage < job_stage::stopping, "a job ends once");
  job_record& job = job_.change_job();
  job.stage = job_stage::stopping;
  job.exit_code = exit_code;
  job.why = std::move(why);
}

}  // namespace manyworlds::inline v0::detail
