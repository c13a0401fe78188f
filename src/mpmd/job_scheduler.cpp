#include "mpmd/job_scheduler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "mpmd/failover_coordinator.hpp"
#include "mpmd/start_order.hpp"

namespace manyworlds::inline v0::detail {

job_scheduler::job_scheduler(job_context& job, const instance_regions& regions,
                             const node_views& nodes)
    : job_(job), regions_(regions), nodes_(nodes), after_(after_lists(job.graph())) {}

// --- places ---------------------------------------------------------------------------

std::vector<instance_place> job_scheduler::taken() const {
  std::vector<instance_place> all;
  for (std::size_t n = 0; n < job_.size(); ++n) {
    const instance_record& record = job_.at(n);
    // One that was given up holds what it has until its process is gone.
    const instance_report* const report = nodes_.current(n, record);
    const node_view* const node = nodes_.find(record.place.node);
    const bool may_live = (report != nullptr && report->life != instance_life::ended) ||
                          (node != nullptr && node->is_under_way(n));
    const bool stands = record.phase == instance_phase::running ||
                        record.phase == instance_phase::waiting || may_live;
    if (stands && !record.place.node.empty()) all.push_back(record.place);
  }
  return all;
}

std::optional<std::string> job_scheduler::place_all() {
  try {
    const std::vector<instance_id> wanted = instances_at_start(job_.graph());
    const auto places = place_instances(job_.graph(), nodes_.resources(), wanted);
    for (const instance_place& place : places) {
      instance_record& record = job_.change(job_.find(place.instance).value());
      record.place = place;
      record.left_on.clear();
      record.phase = instance_phase::waiting;
    }
    job_.change_job().is_placed = true;
  } catch (const placement_error& e) {
    return e.what();
  }
  return std::nullopt;
}

std::optional<std::string> job_scheduler::place_these(
    const std::vector<instance_id>& wanted) {
  try {
    const auto places =
        place_instances(job_.graph(), nodes_.resources(), wanted, taken());
    for (const instance_place& place : places)
      job_.change(job_.find(place.instance).value()).place = place;
  } catch (const placement_error& e) {
    return e.what();
  }
  return std::nullopt;
}

/// All at once, since rules and bundles reach across regions: one that is placed alone
/// may take a node that has no room for those that belong with it. Where that cannot be,
/// each region that fits goes on.
std::optional<std::string> job_scheduler::place_again() {
  std::map<std::size_t, std::vector<instance_id>> lacking;
  std::vector<instance_id> all;
  for (std::size_t n = 0; n < job_.size(); ++n) {
    const instance_record& record = job_.at(n);
    if (record.phase != instance_phase::waiting || !record.place.node.empty()) continue;
    lacking[regions_.number_of(n)].push_back(job_.id(n));
    all.push_back(job_.id(n));
  }
  if (all.empty()) return std::nullopt;
  // A search that has found nothing finds nothing again, and may take long.
  attempt now{all, taken(), nodes_.resources(), {}};
  if (last_failed_ && last_failed_->is_of_the_same(now)) return last_failed_->trouble;
  last_failed_.reset();
  std::optional<std::string> trouble = place_these(all);
  if (trouble && lacking.size() > 1) {
    trouble.reset();
    for (const auto& [region, wanted] : lacking)
      if (auto one = place_these(wanted)) trouble = std::move(one);
  }
  if (trouble) {
    now.trouble = *trouble;
    last_failed_ = std::move(now);
  }
  return trouble;
}

bool job_scheduler::has_enough_of(std::size_t role) const {
  const auto [first, end] = job_.range_of(role);
  const auto lives = [this](std::size_t n) {
    const instance_record& record = job_.at(n);
    const auto region = regions_.of(n);
    // One that waits with its place starts when its region has places.
    const bool starts =
        record.phase == instance_phase::waiting &&
        std::all_of(region.begin(), region.end(), [this](std::size_t each) {
          const instance_record& member = job_.at(each);
          return member.phase != instance_phase::waiting || !member.place.node.empty();
        });
    return starts || record.phase == instance_phase::running;
  };
  // A session is nothing without its controller.
  if (job_.role_of(first).kind == role_kind::spmd && !lives(first)) return false;
  std::size_t living = 0;
  std::size_t done = 0;
  for (std::size_t n = first; n < end; ++n) {
    living += lives(n) ? 1 : 0;
    done += job_.at(n).has_ended_well() ? 1 : 0;
  }
  // Where the others have done their part, nothing goes on without those that lack one.
  const std::size_t least = job_.role_of(first).counts.min;
  return living + done >= least && (living > 0 || done == 0);
}

// --- starts ---------------------------------------------------------------------------

bool job_scheduler::is_ready(std::size_t instance) const {
  const instance_record& record = job_.at(instance);
  if (record.phase == instance_phase::ended) {
    // A worker ends with its session, which ended as its controller did.
    const auto controller = job_.session_controller_of(instance);
    const bool is_with =
        controller && job_.at(*controller).phase == instance_phase::ended;
    return (is_with ? job_.at(*controller) : record).has_ended_well();
  }
  if (record.phase != instance_phase::running) return false;
  const instance_report* const report = nodes_.current(instance, record);
  return report != nullptr && report->life == instance_life::ready;
}

static bool is_to_come(const instance_record& record) noexcept {
  const bool has_place = !record.place.node.empty();
  return record.phase == instance_phase::running ||
         (record.phase == instance_phase::waiting && has_place);
}

std::vector<bool> job_scheduler::ready_roles() const {
  const auto& roles = job_.graph().roles();
  std::vector<bool> all(roles.size());
  for (std::size_t role = 0; role < roles.size(); ++role) {
    const auto [first, end] = job_.range_of(role);
    std::size_t ready = 0;
    std::size_t given_up = 0;  // or without a place, for which it may wait long
    for (std::size_t n = first; n < end; ++n) {
      const bool is_there = is_ready(n);
      ready += is_there ? 1 : 0;
      const bool is_wanted = job_.at(n).phase != instance_phase::idle;
      given_up += is_wanted && !is_there && !is_to_come(job_.at(n)) ? 1 : 0;
    }
    const role_count& counts = roles[role].counts;
    const std::size_t least = std::min(counts.min, counts.start);
    const bool is_first = job_.job().stage == job_stage::starting;
    const std::size_t wanted =
        counts.start - std::min<std::size_t>(given_up, counts.start);
    all[role] = ready >= (is_first ? std::max(wanted, least) : least);
  }
  return all;
}

std::vector<bool> job_scheduler::held_regions() const {
  std::vector<bool> all(regions_.count());
  for (const auto& [name, view] : nodes_.all()) {
    for (const auto& [n, report] : view.instances) {
      const instance_record& record = job_.at(n);
      const bool is_old = record.phase == instance_phase::waiting ||
                          report.incarnation < record.incarnation;
      if (is_old && report.life != instance_life::ended)
        all[regions_.number_of(n)] = true;
    }
    // What was ordered before its region failed starts meanwhile, and is ended then.
    for (const auto& [n, order] : view.told)
      if (job_.at(n).phase == instance_phase::waiting && view.is_under_way(n))
        all[regions_.number_of(n)] = true;
  }
  // An earlier incarnation may live where no agent has come yet. Members are told by how
  // many nodes they stand on, and where the first of them is: all have their places
  // first.
  for (std::size_t n = 0; n < job_.size(); ++n) {
    const instance_record& record = job_.at(n);
    const node_view* const node = nodes_.find(record.place.node);
    const bool may_live =
        record.incarnation > 0 && node != nullptr && !node->is_there() && !node->is_dead;
    if (record.phase == instance_phase::waiting &&
        (may_live || record.place.node.empty()))
      all[regions_.number_of(n)] = true;
  }
  return all;
}

/// A time that lies further ahead than any pause was recorded by another clock, or by
/// this one before it was set back.
static bool is_pause_over(const instance_record& record, recorded_time now) noexcept {
  return record.not_before <= now || record.not_before > now + longest_pause;
}

/// What a node still has that was taken to be gone with it, when it was cut off, holds
/// devices that are no longer recorded as its own.
bool job_scheduler::has_strays(const std::string& node, const node_view& view) const {
  return std::any_of(view.instances.begin(), view.instances.end(), [&](const auto& each) {
    const auto& [n, report] = each;
    const instance_record& record = job_.at(n);
    const bool is_placed_here = record.place.node == node && record.agent == view.agent;
    return report.life != instance_life::ended && !is_placed_here;
  });
}

void job_scheduler::start_what_may(recorded_time now) {
  std::set<std::string, std::less<>> with_strays;
  for (const auto& [name, view] : nodes_.all())
    if (has_strays(name, view)) with_strays.insert(name);
  const std::vector<bool> ready = ready_roles();
  const std::vector<bool> held = held_regions();
  for (std::size_t n = 0; n < job_.size(); ++n) {
    if (job_.at(n).phase != instance_phase::waiting) continue;
    const auto& after = after_[job_.role_number(n)];
    const node_view* const node = nodes_.find(job_.at(n).place.node);
    const bool may = is_pause_over(job_.at(n), now) && !held[regions_.number_of(n)] &&
                     node != nullptr && node->is_there() &&
                     !with_strays.contains(job_.at(n).place.node) &&
                     std::all_of(after.begin(), after.end(),
                                 [&](std::size_t role) { return ready[role]; });
    if (!may) continue;
    instance_record& record = job_.change(n);
    ++record.incarnation;
    record.phase = instance_phase::running;
    record.agent = node->agent;
    record.address = node->resources.address;
    record.not_before = 0;
  }
}

std::vector<std::string> job_scheduler::what_waits_for(recorded_time now) const {
  const std::vector<bool> ready = ready_roles();
  const std::vector<bool> held = held_regions();
  const auto what = [&](std::size_t n) -> std::string {
    const instance_record& record = job_.at(n);
    if (record.place.node.empty()) return "a place";
    const node_view* const node = nodes_.find(record.place.node);
    if (node == nullptr || !node->is_there()) return "the agent of its node";
    if (!is_pause_over(record, now)) return "its pause after a failure";
    for (const std::size_t role : after_[job_.role_number(n)])
      if (!ready[role])
        return fmt::format("role \"{}\" to be ready", job_.graph().roles()[role].name);
    const bool is_held =
        held[regions_.number_of(n)] || has_strays(record.place.node, *node);
    return is_held ? "what it follows to end" : "";
  };
  std::vector<std::string> all(job_.size());
  for (std::size_t n = 0; n < job_.size(); ++n)
    if (job_.at(n).phase == instance_phase::waiting) all[n] = what(n);
  return all;
}

std::optional<recorded_time> job_scheduler::next_start(recorded_time now) const {
  std::optional<recorded_time> next;
  for (std::size_t n = 0; n < job_.size(); ++n) {
    const instance_record& record = job_.at(n);
    const bool lasts = record.phase == instance_phase::waiting && record.not_before > now;
    if (lasts && (!next || record.not_before < *next)) next = record.not_before;
  }
  return next;
}

bool job_scheduler::is_all_ready() const {
  for (std::size_t n = 0; n < job_.size(); ++n)
    if (is_to_come(job_.at(n)) && !is_ready(n)) return false;
  // Of what was given up, or lacks a place, enough of its role are left.
  const std::vector<bool> roles = ready_roles();
  return std::find(roles.begin(), roles.end(), false) == roles.end();
}

}  // namespace manyworlds::inline v0::detail
