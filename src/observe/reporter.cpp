#include "observe/reporter.hpp"

#include <tuple>

#include "link/local_peer.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "world/runtime_core.hpp"
#include "world/world_core.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// Time for one reactor to answer. A turn of a healthy reactor is far shorter, also on
/// a busy machine.
constexpr std::chrono::milliseconds answer_patience(100);
// `reporter::report` promises a fifth of a second for both reactors.
static_assert(2 * answer_patience <= std::chrono::milliseconds(200));

operation_report report_on(const operation& op, time_point now) {
  operation_report report;
  report.kind = op.kind;
  report.peer = op.peer;
  report.lane = op.on.number();
  report.bytes_moved = op.bytes_moved;
  report.bytes_wanted =
      op.kind == operation_kind::send ? op.source.total_bytes() : op.target.total_bytes();
  report.bytes_wanted += op.head_bytes;
  report.begun = op.begun;
  report.waits_for = name_of(static_cast<send_obstacle>(op.waits_for));
  report.age = now - op.started;
  report.file = op.where.file_name();
  report.line = op.where.line();
  return report;
}

reactor_report report_on(reactor& r) {
  reactor_report report;
  report.engine = r.io().name();
  report.turns = r.turns();
  report.times = r.times();
  report.spin = r.spins_for();
  report.spin_is_held = r.is_spinning_held();
  report.only_cpu = r.binding().only_cpu();
  return report;
}

template <class Answer>
std::shared_ptr<const Answer> ask_of(inquiry<Answer>& question, reactor_report& of) {
  auto answer = question.ask(answer_patience);
  if (!answer) of.silent_for = question.unanswered_for().value_or(answer_patience);
  return answer;
}

}  // namespace

reporter::reporter(runtime_core& rt)
    : core_(rt),
      since_(rt.service().now()),
      user_(rt.user(), [this] { return collect_user(); }),
      service_(rt.service(), [this] { return collect_service(); }) {}

runtime_report reporter::report() {
  runtime_report report;
  report.user = report_on(core_.user());
  report.service = report_on(core_.service());
  // Ask the reactors before the rest is read. So the report holds what they were told
  // before, and all ages are as of one moment, even if the answers took long.
  std::shared_ptr<const user_part> used;
  std::shared_ptr<const service_part> served;
  if (core_.env().starts_threads()) {
    used = ask_of(user_, report.user);
    served = ask_of(service_, report.service);
  } else {
    // In a simulation one thread turns everything, and it is this one.
    used = std::make_shared<const user_part>(collect_user());
    served = std::make_shared<const service_part>(collect_service());
  }

  const time_point now = core_.service().now();
  const process_address& self = core_.self();
  report.identity = self.identity;
  report.address = self.endpoint.text();
  report.incarnation = self.id.text();
  report.thread_name = core_.options().thread_name.str();
  report.uptime = now - since_;
  const serving_tally& serving = core_.serving();
  report.serving = {serving.bodies_failed, serving.calls_asked_twice,
                    serving.answered_by_another, serving.late_answers,
                    serving.calls_given_back};
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(jobs_, [](const auto& each) { return each.expired(); });
    for (const auto& each : jobs_) {
      if (const auto ask = each.lock()) report.jobs.push_back((*ask)());
    }
  }
  for (const auto& w : core_.worlds().snapshot()) {
    report.worlds.push_back(report_on(*w, now));
    if (used) add(used->moved, report.worlds.back());
    if (served) add(*served, report.worlds.back());
  }
  for (const ended_world& w : core_.worlds().ended()) {
    report.ended_worlds.push_back({w.name, w.epoch, w.first_cause.text(), now - w.when});
  }
  if (used) report.sessions = used->sessions;
  if (served) report.links = served->links;
  report.recent = recent_operations();
  return report;
}

void reporter::add(const transfers& moved, world_report& to) {
  const auto found = moved.find(to.instance);
  // Nothing has moved in a world that came up since.
  to.transfers = found == moved.end() ? transfer_report() : found->second;
}

void reporter::add(const service_part& served, world_report& to) {
  const auto left = served.left.find(to.instance);
  if (left == served.left.end()) return;
  for (member_report& m : to.members) {
    MW_ASSERT(m.rank >= 0 && static_cast<std::size_t>(m.rank) < left->second.size(),
              "a world's members do not change while it lives");
    m.has_left = left->second[static_cast<std::size_t>(m.rank)];
  }
}

void reporter::tell_of_job(std::weak_ptr<const job_source> ask) {
  const std::lock_guard lock(mutex_);
  jobs_.push_back(std::move(ask));
}

void reporter::tell_of_session(std::weak_ptr<const session_source> ask) {
  std::erase_if(sessions_, [](const auto& each) { return each.expired(); });
  sessions_.push_back(std::move(ask));
}

reporter::user_part reporter::collect_user() const {
  user_part all;
  for (const auto& w : core_.worlds().snapshot())
    all.moved[w->instance()] = report_on_transfers(*w);
  for (const auto& each : sessions_) {
    if (const auto ask = each.lock()) all.sessions.push_back((*ask)());
  }
  return all;
}

reporter::service_part reporter::collect_service() const {
  const time_point now = core_.service().now();
  service_part part;
  for (const auto& l : core_.peers().links()) {
    link_report report;
    report.identity = l->peer().identity;
    report.incarnation = l->peer().id.text();
    report.address = l->peer().endpoint.text();
    report.is_up = l->is_up();
    report.is_held = l->is_held();
    report.is_local = l->local().shares_memory();
    report.is_readable = l->local().is_readable();
    report.silence = now - l->last_heard();
    report.peer_turns = l->peer_turns();
    report.without_turn = now - l->peer_progressed();
    part.links.push_back(std::move(report));
  }
  for (const auto& w : core_.worlds().snapshot()) {
    if (w->epoch() == 0) continue;
    std::vector<bool>& left = part.left[w->instance()];
    for (rank_t r = 0; r < w->view().size(); ++r)
      left.push_back(w->members().has_left(r));
  }
  return part;
}

std::vector<operation_report> reporter::recent_operations() const {
  std::vector<ended_operation> ended;
  std::vector<std::pair<world_name, std::uint64_t>> worlds;
  {
    const std::lock_guard lock(core_.history().mutex());
    ended = core_.history().recent();
    for (const ended_operation& r : ended) {
      worlds.push_back(core_.history().name_of_world(r.world));
    }
  }
  const time_point now = core_.user().now();
  std::vector<operation_report> reports;
  for (const ended_operation& r : ended) {
    operation_report o;
    o.kind = r.kind;
    o.peer = r.peer;
    o.lane = r.lane;
    o.bytes_moved = r.bytes;
    o.begun = r.begun;
    o.age = r.ended - r.started;
    o.file = r.file;
    o.line = r.line;
    std::tie(o.world, o.epoch) = worlds[reports.size()];
    o.failed_with = r.failed_with;
    o.ended_ago = now - r.ended;
    reports.push_back(std::move(o));
  }
  return reports;
}

// --- one world

world_report report_on(const world_core& w, time_point now) {
  world_report report;
  report.name = w.options().name;
  report.instance = w.instance();
  report.rank = w.options().rank;
  report.size = w.options().size;
  report.state = name_of(w.state());
  report.first_cause = w.first_failure();
  report.history = w.tally().read(now);
  // Read the epoch first: it publishes the view and the links.
  report.epoch = w.epoch();
  if (report.epoch != 0) {
    for (rank_t r = 0; r < w.view().size(); ++r) {
      member_report m;
      m.rank = r;
      m.identity = w.view().member(r).identity;
      m.address = w.view().member(r).endpoint.text();
      m.is_self = r == w.options().rank;
      m.is_suspect = w.members().is_suspect(r);
      MW_ASSERT(static_cast<std::size_t>(r) < w.members().links().size(),
                "each member has a place for its link");
      const auto& l = w.members().links()[static_cast<std::size_t>(r)];
      if (l && !m.is_self) {
        m.silence = now - l->last_heard();
        m.transport = w.members().is_over_memory(r) ? "shm" : "tcp";
      }
      report.members.push_back(std::move(m));
    }
  }
  const std::lock_guard lock(w.pending().history().mutex());
  for (const operation* op = w.pending().first(); op; op = op->next_pending) {
    report.pending.push_back(report_on(*op, now));
  }
  return report;
}

transfer_report report_on_transfers(const world_core& w) {
  transfer_report report;
  const backend* const by = w.moved_by();
  if (!by) return report;
  report.transport = by->transport();
  report.lanes = by->lanes();
  report.collective = by->collective();
  report.counters = by->counters();
  if (const device_control* const gpu = w.device()) report.device = gpu->status();
  return report;
}

}  // namespace manyworlds::inline v0::detail
