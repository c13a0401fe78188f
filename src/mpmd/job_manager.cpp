#include "mpmd/job_manager.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "duration_text.hpp"

namespace manyworlds::inline v0::detail {

constexpr recorded_time end_of_time = INT64_MAX;

job_manager::job_manager(job_context context, manager_limits limits, recorded_time now)
    : job_(std::move(context)),
      limits_(limits),
      regions_(job_),
      failover_(job_, regions_),
      scheduler_(job_, regions_, nodes_),
      began_(now) {
  // Until the agents have come it is not known what became of what they had.
  for (std::size_t n = 0; n < job_.size(); ++n)
    for (const std::string& node : {job_.at(n).place.node, job_.at(n).left_on})
      if (!node.empty()) nodes_.expect(node, now);
}

// --- what is heard --------------------------------------------------------------------

void job_manager::node_came(const node_resources& resources, std::string agent,
                            const std::vector<instance_report>& has) {
  std::vector<std::pair<std::size_t, instance_report>> known;
  for (const instance_report& report : has)
    if (const auto n = job_.find(report.instance)) known.emplace_back(*n, report);
  nodes_.came(resources, std::move(agent), known);
}

void job_manager::store_is_away(recorded_time now) {
  for (auto& [name, view] : nodes_.all()) {
    const bool is_away = !view.is_there() && !is_gone(&view, now);
    if (is_away) view.absent_since = now;
  }
}

void job_manager::node_lost(std::string_view node, bool is_dead, recorded_time now) {
  nodes_.lost(node, is_dead, now);
}

bool job_manager::heard(std::string_view node, const instance_report& report) {
  const auto n = job_.find(report.instance);
  if (!n) return false;
  nodes_.heard(node, *n, report);
  return true;
}

void job_manager::answered(const instance_id& about, std::uint64_t incarnation,
                           bool is_handled) {
  const auto n = job_.find(about);
  if (!n) return;
  const auto at = questions_.find(*n);
  if (at != questions_.end() && at->second.incarnation == incarnation)
    at->second.is_handled = is_handled;
}

void job_manager::lost_to_session(session_loss told) {
  const auto worker = job_.find(told.worker);
  const auto controller = job_.find(told.controller);
  if (!worker || !controller || worker == controller) return;
  const instance_record& by = job_.at(*controller);
  const bool is_its_own = job_.session_controller_of(*worker) == controller;
  const bool is_there = by.phase == instance_phase::running &&
                        by.incarnation == told.controller_incarnation;
  if (is_its_own && is_there)
    lost_to_sessions_.insert_or_assign(*worker, std::move(told));
}

void job_manager::stop(std::string why) {
  if (job_.job().stage < job_stage::stopping) failover_.end_job(0, std::move(why));
}

// --- conclusions ----------------------------------------------------------------------

void job_manager::decide(recorded_time now) {
  decided_ = now;
  waits_for_.clear();
  is_again_due_ = false;
  if (is_over()) return;
  drop_old_questions(now);
  // A controller has its time from when it was asked: a slow record goes ahead of that.
  for (auto& [n, asked] : questions_)
    if (asked.is_told && !asked.until) asked.until = now + limits_.answer;
  conclude_ends(now);
  lose_absent_nodes(now);
  // Each of them may end the job, which ends once.
  const auto goes_on = [this] { return job_.job().stage < job_stage::stopping; };
  end_with_controllers();
  end_what_sessions_lost(now);
  if (goes_on()) conclude_limits(now);
  if (goes_on()) end_what_is_never_ready(now);
  if (goes_on()) end_what_stands(now);
  if (goes_on()) place(now);
  // Ahead of the starts: what is recorded to run and never ordered would seem to live.
  conclude_stage(now);
  if (!goes_on() || !job_.job().is_placed) return;
  // That all are placed is recorded before any of them starts.
  is_again_due_ = job_.has_changes_of_job();
  if (!is_again_due_) scheduler_.start_what_may(now);
}

/// An end counts once: by then the record is of that incarnation and still running.
void job_manager::conclude_ends(recorded_time now) {
  for (const heard_end& end : nodes_.take_ends()) conclude_end_of(end, now);
  if (job_.job().stage < job_stage::stopping) return;
  // What was recorded and never ordered is not started.
  for (std::size_t n = 0; n < job_.size(); ++n) {
    const instance_record& record = job_.at(n);
    const node_view* const node = nodes_.find(record.place.node);
    const bool was_never_ordered =
        record.phase == instance_phase::running && node != nullptr && node->is_there() &&
        node->agent == record.agent && nodes_.current(n, record) == nullptr &&
        !node->told.contains(n);
    if (was_never_ordered) job_.change(n).phase = instance_phase::ended;
  }
}

void job_manager::conclude_end_of(const heard_end& end, recorded_time now) {
  const instance_record& record = job_.at(end.instance);
  const instance_report* const report = nodes_.current(end.instance, record);
  const bool is_it = report != nullptr && report->life == instance_life::ended &&
                     record.incarnation == end.incarnation;
  if (!is_it) return;
  if (record.phase == instance_phase::running) {
    conclude_end(end.instance, report->exit, now);
    // Its controller is asked first.
    if (record.phase == instance_phase::running) nodes_.keep_end(end);
  } else if (record.exit != report->exit) {
    // It was ended with its region, or with the job.
    job_.change(end.instance).exit = report->exit;
  }
}

/// A node that is back in time has lost nothing.
void job_manager::drop_old_questions(recorded_time now) {
  std::erase_if(questions_, [&](const auto& each) {
    const instance_record& record = job_.at(each.first);
    const bool is_back =
        each.second.of == loss::node && !is_lost_with_node(each.first, now);
    return record.phase != instance_phase::running || is_back ||
           record.incarnation != each.second.incarnation;
  });
}

void job_manager::conclude_end(std::size_t instance, const instance_exit& exit,
                               recorded_time now) {
  const bool is_ending = job_.job().stage >= job_stage::stopping;
  const bool is_done =
      exit.is_success() && job_.role_of(instance).restarts != restart_when::always;
  if (!is_ending && exit.is_lasting()) {
    job_.change(instance).exit = exit;
    questions_.erase(instance);
    failover_.cannot_start(instance, exit.text);
    return;
  }
  if (!is_ending && !is_done && must_ask(instance, now)) return;
  job_.change(instance).exit = exit;
  if (is_ending || is_done) {
    job_.change(instance).phase = instance_phase::ended;
    job_.change(instance).why.clear();
    // It has left a session that was over, and its controller needs it for the next one.
    const auto controller = job_.session_controller_of(instance);
    if (!is_ending && controller && job_.at(*controller).phase == instance_phase::waiting)
      failover_.bring_worker_back(instance, now);
  } else if (!is_declined(instance, exit.text, {}, now)) {
    failover_.failed(instance, now, exit.text.empty() ? "has ended" : exit.text);
  }
}

bool job_manager::is_declined(std::size_t instance, const std::string& why,
                              duration takes, recorded_time now) {
  const auto asked = questions_.extract(instance);
  if (asked.empty() || asked.mapped().is_handled.value_or(false)) return false;
  failover_.restart_job(now,
                        fmt::format("{}: {}; its controller {} cannot go on without it",
                                    job_.id(instance).text(), why,
                                    job_.id(asked.mapped().controller).text()),
                        takes);
  return true;
}

void job_manager::pass_limit(std::size_t instance, std::string why, duration takes,
                             recorded_time now) {
  if (must_ask(instance, now, loss::limit)) {
    question& asked = questions_[instance];
    asked.why = std::move(why);
    asked.takes = takes;
  } else if (!is_declined(instance, why, takes, now)) {
    failover_.failed(instance, now, why, takes);
  }
}

/// What its controller was asked about has failed, also if it goes on meanwhile: what the
/// controller does by its answer cannot be taken back.
void job_manager::conclude_limits(recorded_time now) {
  std::vector<std::size_t> all;
  for (const auto& [n, asked] : questions_)
    if (asked.of == loss::limit && job_.at(n).phase == instance_phase::running)
      all.push_back(n);
  for (const std::size_t n : all) {
    // Each of them may restart the job, or end it.
    const bool may_go_on = job_.job().stage < job_stage::stopping;
    if (!may_go_on || job_.at(n).phase != instance_phase::running) continue;
    const question asked = questions_.at(n);
    pass_limit(n, asked.why, asked.takes, now);
  }
}

std::optional<std::size_t> job_manager::controller_of(std::size_t instance) const {
  const std::string& role = job_.role_of(instance).controller_role;
  if (role.empty()) return std::nullopt;
  return job_.find({role, 0});
}

bool job_manager::must_ask(std::size_t instance, recorded_time now, loss of) {
  const auto controller = controller_of(instance);
  if (!controller) return false;
  const std::uint64_t incarnation = job_.at(instance).incarnation;
  question& asked = questions_[instance];
  if (asked.incarnation != incarnation)
    asked = {incarnation, *controller, {}, {}, false, of, {}, {}};
  if (asked.is_handled) return false;
  const instance_report* const there = nodes_.current(*controller, job_.at(*controller));
  const bool is_there = job_.at(*controller).phase == instance_phase::running &&
                        there != nullptr && there->life == instance_life::ready;
  // One that is itself away has no say: its role goes on without it.
  const bool may_answer = is_there && (!asked.until || now < *asked.until);
  if (!is_there) questions_.erase(instance);
  return may_answer;
}

/// An agent that is dead has taken its instances with it. One that is only silent may be
/// cut off, and its instances live.
bool job_manager::is_gone(const node_view* node, recorded_time now) const noexcept {
  if (node == nullptr) return true;
  if (node->is_there()) return false;
  return node->is_dead || now - node->absent_since >= limits_.cut_off;
}

bool job_manager::is_lost_with_node(std::size_t instance, recorded_time now) const {
  const instance_record& record = job_.at(instance);
  if (record.place.node.empty() || record.phase != instance_phase::running) return false;
  const node_view* const node = nodes_.find(record.place.node);
  const bool is_node_gone = is_gone(node, now);
  const bool is_replaced =
      !is_node_gone && node->is_there() && node->agent != record.agent;
  return is_node_gone || is_replaced;
}

void job_manager::lose_absent_nodes(recorded_time now) {
  for (std::size_t n = 0; n < job_.size(); ++n) {
    if (!is_lost_with_node(n, now)) continue;
    if (job_.job().stage >= job_stage::stopping) {
      instance_record& record = job_.change(n);
      record.phase = instance_phase::ended;
      const node_view* const node = nodes_.find(record.place.node);
      const bool may_live = node != nullptr && !node->is_there() && !node->is_dead;
      if (may_live)
        record.why = fmt::format("node {} is away: what runs there may live on",
                                 record.place.node);
    } else if (!must_ask(n, now, loss::node) &&
               !is_declined(n, "its node is gone", {}, now)) {
      failover_.lost_with_node(n, now);
    }
  }
  // What waits for its next start is placed anew: also members of a region that wait
  // only since now. Another process of an agent may have other devices to give.
  for (std::size_t n = 0; n < job_.size(); ++n) {
    const instance_record& record = job_.at(n);
    const bool has_place =
        record.phase == instance_phase::waiting && !record.place.node.empty();
    if (!has_place) continue;
    const node_view* const node = nodes_.find(record.place.node);
    const bool is_replaced = node != nullptr && node->is_there() &&
                             !record.agent.empty() && node->agent != record.agent;
    if (is_replaced || is_gone(node, now)) job_.change(n).lose_place();
  }
}

/// Returns a length as records count it: one that passes there has passed.
static recorded_time in_milliseconds(duration length) {
  return std::chrono::ceil<std::chrono::milliseconds>(length).count();
}

/// Returns the sum, or the longest time if there is none.
static duration sum_of(duration a, duration b) noexcept {
  return a < duration::max() - b ? a + b : duration::max();
}

/// Returns how long one incarnation takes that fails by that limit: its predecessor ends,
/// there is a pause, and the limit passes.
static duration time_of_a_try(const graph_role& role, duration limit) noexcept {
  return sum_of(limit, role.grace + std::chrono::milliseconds(longest_pause));
}

void job_manager::end_what_is_never_ready(recorded_time now) {
  for (std::size_t n = 0; n < job_.size(); ++n) {
    const instance_record& record = job_.at(n);
    const instance_report* const report = nodes_.current(n, record);
    const bool is_unready = record.phase == instance_phase::running &&
                            report != nullptr && report->life <= instance_life::running &&
                            !questions_.contains(n);
    if (!is_unready) {
      unready_.erase(n);
      continue;
    }
    auto& [incarnation, since] = unready_[n];
    if (incarnation != record.incarnation) {
      incarnation = record.incarnation;
      since = now;
    }
    const duration limit = job_.role_of(n).ready_within;
    if (now - since < in_milliseconds(limit)) continue;
    unready_.erase(n);
    pass_limit(n, fmt::format("was not ready within {}", duration_text(limit)),
               time_of_a_try(job_.role_of(n), limit), now);
    if (job_.job().stage >= job_stage::stopping) return;
  }
}

void job_manager::end_what_sessions_lost(recorded_time now) {
  for (auto& [n, told] : std::exchange(lost_to_sessions_, {})) {
    const instance_record& record = job_.at(n);
    // How one ended that has ended tells its agent, and its role's controller is asked.
    const instance_report* const report = nodes_.current(n, record);
    const bool has_ended = report != nullptr && report->life == instance_life::ended;
    const bool is_of_another =
        record.incarnation != told.incarnation || job_.job().stage >= job_stage::stopping;
    const bool is_running = record.phase == instance_phase::running && !has_ended;
    // It may have left an earlier session when that one's controller had failed already.
    const bool has_left = record.has_ended_well();
    const std::string why =
        told.why.empty() ? "its session has let it go" : std::move(told.why);
    if (!is_of_another && is_running) failover_.failed(n, now, why);
    if (!is_of_another && has_left) failover_.worker_left(n, now, why);
  }
}

void job_manager::end_with_controllers() {
  for (std::size_t n = 0; n < job_.size(); ++n) {
    const auto controller = job_.session_controller_of(n);
    const bool may_live = job_.at(n).phase == instance_phase::running ||
                          job_.at(n).phase == instance_phase::waiting;
    if (!controller || !may_live || job_.at(*controller).phase != instance_phase::ended)
      continue;
    job_.change(n).phase = instance_phase::ended;
    job_.change(n).why = "its controller has ended";
  }
}

/// Returns for how long its progress may stand still; zero: without a limit.
static duration hang_limit_of(const graph_role& role) noexcept {
  constexpr duration of_sessions = std::chrono::minutes(1);
  const bool has_default = role.hang_after == duration::zero();
  return has_default && role.kind == role_kind::spmd ? of_sessions : role.hang_after;
}

/// Returns whether it is the controller of a session that waits for a worker of it.
bool job_manager::lacks_workers(std::size_t instance) const {
  if (job_.role_of(instance).kind != role_kind::spmd || job_.id(instance).index != 0)
    return false;
  const auto [first, end] = job_.range_of(job_.role_number(instance));
  for (std::size_t n = first + 1; n < end; ++n) {
    const instance_record& record = job_.at(n);
    const instance_report* const report = nodes_.current(n, record);
    const bool is_there = report != nullptr && report->life == instance_life::ready;
    const bool is_to_come = record.phase == instance_phase::waiting ||
                            (record.phase == instance_phase::running && !is_there);
    if (is_to_come) return true;
  }
  return false;
}

/// Those that wait for one that stands, stand themselves: the longest standing is
/// charged, and what the others do after that is counted from then. One that never says
/// how far it is does not count.
void job_manager::end_what_stands(recorded_time now) {
  std::optional<std::size_t> longest;
  for (std::size_t n = 0; n < job_.size(); ++n) {
    const duration limit = hang_limit_of(job_.role_of(n));
    if (limit == duration::zero()) continue;
    const instance_record& record = job_.at(n);
    const instance_report* const report = nodes_.current(n, record);
    const bool is_watched = record.phase == instance_phase::running &&
                            report != nullptr && report->progress > 0 &&
                            report->life == instance_life::ready &&
                            !questions_.contains(n);
    if (!is_watched) {
      advances_.erase(n);
      continue;
    }
    advance& at = advances_[n];
    // Its time begins when all of its workers are there.
    const bool lacks = lacks_workers(n);
    if (at.incarnation != record.incarnation || at.progress != report->progress ||
        lacks || at.lacked)
      at = {record.incarnation, report->progress, now, lacks};
    if (now - at.since < in_milliseconds(limit)) continue;
    if (!longest || at.since < advances_.at(*longest).since) longest = n;
  }
  if (!longest) return;
  const std::string why =
      fmt::format("has stood still at step {} for {}", advances_.at(*longest).progress,
                  duration_text(hang_limit_of(job_.role_of(*longest))));
  advances_.erase(*longest);
  for (auto& [n, at] : advances_) at.since = now;
  const graph_role& role = job_.role_of(*longest);
  // The next one has to be ready, too, before it can stand still.
  const bool has_to_tell = role.ready == ready_when::told;
  const duration until_ready = has_to_tell ? role.ready_within : duration::zero();
  pass_limit(*longest, why, time_of_a_try(role, sum_of(hang_limit_of(role), until_ready)),
             now);
}

void job_manager::place(recorded_time now) {
  std::optional<std::string> trouble;
  // Each start of the job has its own time.
  if (std::exchange(unplaced_in_, job_.job().restart_count) != job_.job().restart_count) {
    unplaced_since_.reset();
    lacking_since_.clear();
  }
  if (!job_.job().is_placed) {
    // A restart is recorded before anything is placed by it.
    is_again_due_ = job_.has_changes_of_job();
    if (is_again_due_) return;
    // What is left of the last time still holds what is to be given out.
    if (has_living(now)) return;
    const std::size_t there = nodes_.resources().size();
    const bool are_all = there >= limits_.nodes;
    if (are_all) trouble = scheduler_.place_all();
    if (are_all && !trouble) return;
    if (!are_all) trouble = fmt::format("{} of {} nodes are there", there, limits_.nodes);
    // It fits on none of the nodes that were asked for: more time does not help.
    const bool is_first = job_.job().restart_count == 0;
    const recorded_time limit = is_first ? limits_.join : limits_.no_place;
    if (!unplaced_since_) unplaced_since_ = is_first ? began_ : now;
    waits_for_ = *trouble;
    const bool is_over = (are_all && is_first) || now - *unplaced_since_ >= limit;
    if (!is_over) return;
    // A job that has run goes on with the nodes that are left, if it fits.
    if (!is_first && !are_all) trouble = scheduler_.place_all();
    if (trouble) failover_.end_job(1, *trouble);
    unplaced_since_.reset();
    return;
  }
  trouble = scheduler_.place_again();
  note_lacking(trouble.has_value(), now);
  if (trouble) waits_for_ = *trouble;
  if (!unplaced_since_) return;
  if (now - *unplaced_since_ < limits_.no_place) return;
  unplaced_since_.reset();
  lacking_since_.clear();
  failover_.restart_job(now, *trouble, std::chrono::milliseconds(limits_.no_place));
}

/// Each has its own time: one that has lost its place just now may get another.
void job_manager::note_lacking(bool are_there, recorded_time now) {
  unplaced_since_.reset();
  const auto before = std::exchange(lacking_since_, {});
  std::vector<bool> has_enough;
  for (std::size_t role = 0; are_there && role < job_.graph().roles().size(); ++role)
    has_enough.push_back(scheduler_.has_enough_of(role));
  for (std::size_t n = 0; are_there && n < job_.size(); ++n) {
    const instance_record& record = job_.at(n);
    if (record.phase != instance_phase::waiting || !record.place.node.empty()) continue;
    // While enough are left of its role, and of those that wait for it, it waits for as
    // long as it takes (law G-d).
    const auto region = regions_.of(n);
    const bool are_enough =
        std::all_of(region.begin(), region.end(),
                    [&](std::size_t each) { return has_enough[job_.role_number(each)]; });
    const auto known = before.find(n);
    const bool is_new = are_enough || known == before.end();
    const recorded_time since = is_new ? now : known->second;
    lacking_since_[n] = since;
    if (!are_enough) unplaced_since_ = std::min(unplaced_since_.value_or(since), since);
  }
}

void job_manager::conclude_stage(recorded_time now) {
  const job_record& job = job_.job();
  if (job.stage == job_stage::starting && job.is_placed && scheduler_.is_all_ready()) {
    job_.change_job().stage = job_stage::running;
    // Why it was started again is past; the events have it.
    job_.change_job().why.clear();
  }
  if (job.stage < job_stage::stopping && job.is_placed) {
    std::size_t drivers = 0;
    std::size_t ended = 0;
    int code = 0;
    for (std::size_t n = 0; n < job_.size(); ++n) {
      const instance_record& record = job_.at(n);
      // The end of a session is that of its controller.
      const bool is_driver = job_.role_of(n).is_driver && !job_.session_controller_of(n);
      if (!is_driver || record.phase == instance_phase::idle) continue;
      ++drivers;
      if (record.phase != instance_phase::ended) continue;
      ++ended;
      if (code == 0 && !record.has_ended_well()) {
        const int own = record.exit ? record.exit->shell_code() : 0;
        code = own != 0 ? own : 1;
      }
    }
    if (drivers > 0 && ended == drivers)
      failover_.end_job(code, code == 0 ? "its drivers have ended" : "a driver failed");
  }
  if (job.stage != job_stage::stopping || has_living(now)) return;
  // That it ends is recorded ahead of what has ended, that it is over behind.
  is_again_due_ = job_.has_changes_of_job();
  if (!is_again_due_) job_.change_job().stage = job_stage::stopped;
}

bool job_manager::has_living(recorded_time now) const {
  for (const auto& [name, view] : nodes_.all()) {
    // What was recorded for a node may live there before its agent has come.
    if (!view.is_there() && !is_gone(&view, now)) return true;
    for (const auto& [n, report] : view.instances)
      if (report.life != instance_life::ended) return true;
    for (const auto& [n, order] : view.told)
      if (view.is_under_way(n)) return true;
  }
  for (std::size_t n = 0; n < job_.size(); ++n)
    if (job_.at(n).phase == instance_phase::running) return true;
  return false;
}

std::size_t job_manager::counted_failures(std::size_t instance) const {
  const std::vector<recorded_time>& all = job_.at(instance).failures;
  return static_cast<std::size_t>(std::count_if(
      all.begin(), all.end(), [this](recorded_time until) { return until > decided_; }));
}

// --- orders ---------------------------------------------------------------------------

std::vector<agent_order> job_manager::orders() {
  std::vector<agent_order> all;
  // Ahead of the starts: an end is acknowledged before its successor is ordered, which is
  // the last order then.
  for (auto& [name, view] : nodes_.all()) {
    for (auto at = view.instances.begin(); at != view.instances.end();) {
      // What is recorded is taken off the view.
      const auto& [n, report] = *at++;
      order_about_report(view, name, n, report, all);
    }
  }
  const bool is_ending = job_.job().stage >= job_stage::stopping;
  for (std::size_t n = 0; n < job_.size(); ++n)
    if (!is_ending && job_.at(n).phase == instance_phase::running)
      order_about_running(n, all);
  for (auto& [n, asked] : questions_) {
    if (asked.is_told) continue;
    asked.is_told = true;
    all.push_back({agent_order::what::ask, job_.at(asked.controller).place.node,
                   asked.controller, asked.incarnation, n});
  }
  return all;
}

/// Orders it once of each process of an agent, which answers with a report.
static bool is_new_order(node_view& view, std::size_t instance,
                         const agent_order& order) {
  agent_order& told = view.told[instance];
  const bool is_new = !(told == order);
  told = order;
  return is_new;
}

void job_manager::order_about_running(std::size_t instance,
                                      std::vector<agent_order>& all) {
  const instance_record& record = job_.at(instance);
  node_view* const view = nodes_.find(record.place.node);
  if (view == nullptr || view->agent != record.agent || record.agent.empty()) return;
  if (nodes_.current(instance, record) != nullptr) return;
  const agent_order order{agent_order::what::ensure, record.place.node, instance,
                          record.incarnation, 0};
  if (is_new_order(*view, instance, order)) all.push_back(order);
}

void job_manager::order_about_report(node_view& view, const std::string& node,
                                     std::size_t instance, const instance_report& report,
                                     std::vector<agent_order>& all) {
  const instance_record& record = job_.at(instance);
  const bool is_current =
      nodes_.current(instance, record) != nullptr && record.place.node == node;
  const bool should_run = is_current && record.phase == instance_phase::running &&
                          job_.job().stage < job_stage::stopping;
  agent_order order{agent_order::what::end, node, instance, report.incarnation, 0};
  if (report.life != instance_life::ended) {
    if (!should_run && is_new_order(view, instance, order)) all.push_back(order);
    return;
  }
  // An end that a controller is asked about is not recorded yet.
  if (is_current && record.phase == instance_phase::running) return;
  // Nor is one that was heard after the last conclusions.
  if (is_current && record.exit != report.exit) return;
  order.kind = agent_order::what::recorded;
  if (is_new_order(view, instance, order)) all.push_back(order);
  // The agent forgets it, and so does the view: its successor is another report.
  view.instances.erase(instance);
}

// --- time -----------------------------------------------------------------------------

std::optional<recorded_time> job_manager::next_due(recorded_time now) const {
  if (is_over()) return std::nullopt;
  if (is_again_due_) return now;
  // What was past then was concluded from, or waits for something that is heard. What
  // has become due since, while that was recorded, is due at once.
  std::optional<recorded_time> due = scheduler_.next_start(decided_);
  const auto by = [&](recorded_time at) {
    if (at > decided_ && (!due || at < *due)) due = at;
  };
  for (const auto& [name, view] : nodes_.all())
    if (!view.is_there() && !view.is_dead) by(view.absent_since + limits_.cut_off);
  for (const auto& [n, asked] : questions_) {
    if (asked.is_told && !asked.until) return now;
    if (asked.until) by(*asked.until);
  }
  for (const auto& [n, since] : unready_) {
    const recorded_time limit = in_milliseconds(job_.role_of(n).ready_within);
    by(limit < end_of_time - since.second ? since.second + limit : end_of_time);
  }
  for (const auto& [n, at] : advances_) {
    const recorded_time limit = in_milliseconds(hang_limit_of(job_.role_of(n)));
    by(limit < end_of_time - at.since ? at.since + limit : end_of_time);
  }
  const bool is_first = job_.job().restart_count == 0 && !job_.job().is_placed;
  const recorded_time since = unplaced_since_.value_or(began_);
  if (!job_.job().is_placed || unplaced_since_)
    by(since + (is_first ? limits_.join : limits_.no_place));
  if (due) due = std::max(*due, now);
  return due;
}

}  // namespace manyworlds::inline v0::detail
