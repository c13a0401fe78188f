#include "manyworlds/launch/launch_agent.hpp"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "duration_text.hpp"
#include "io/system_environment.hpp"
#include "launch/attempt_store.hpp"
#include "launch/coordinator.hpp"
#include "launch/guard_connection.hpp"
#include "launch/health_endpoint.hpp"
#include "launch/job_leader.hpp"
#include "launch/job_notice.hpp"
#include "launch/job_records.hpp"
#include "launch/node_workers.hpp"
#include "launch/plain_text.hpp"
#include "launch/torchrun_keys.hpp"
#include "launch/worker_group.hpp"
#include "launch/worker_variables.hpp"
#include "link/wire.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/launch/process_guard.hpp"
#include "manyworlds/store/tcp_store.hpp"
#include "observe/reporter.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace {

constexpr std::size_t most_workers = 4096;
constexpr std::size_t longest_run_name = 40;
/// Two beats and more, so that one that is late proves nothing.
constexpr duration shortest_hang_timeout = std::chrono::seconds(1);
/// How long the leader waits, beyond the grace, until the others have heard how the job
/// ends.
constexpr duration last_orders = std::chrono::seconds(2);

launch_options checked_job(launch_options job) {
  const auto refuse = [](const std::string& why) {
    throw std::invalid_argument("launch: " + why);
  };
  if (job.program.empty()) refuse("the program is missing");
  if (job.workers < 1 || static_cast<std::size_t>(job.workers) > most_workers)
    refuse(fmt::format("{} workers", job.workers));
  if (!is_plain_name(job.run_id, longest_run_name)) {
    refuse(
        fmt::format("the run id \"{}\" is not 1 to {} letters, digits, '-', '_' or '.'",
                    job.run_id, longest_run_name));
  }
  if (!is_plain_name(job.role, longest_run_name))
    refuse(fmt::format("\"{}\" is no name of a role", job.role));
  if (job.grace < duration::zero()) refuse("the grace is negative");
  if (job.hang_timeout && *job.hang_timeout < shortest_hang_timeout)
    refuse("a limit for hangs under 1 s, within which no worker is judged");
  const auto devices = visible_devices(job.inherited);
  if (job.virtual_local_rank && devices &&
      devices->size() < static_cast<std::size_t>(job.workers)) {
    refuse(fmt::format("{} workers, and {} visible devices for one each", job.workers,
                       devices->size()));
  }
  if (job.kernel_limit && *job.kernel_limit <= duration::zero())
    refuse("a limit for uninterruptible sleep that is not above 0");
  if (job.worlds_up_limit <= duration::zero())
    refuse("the time for worlds to be up again is not above 0");
  if (job.exit_barrier < duration::zero()) refuse("the exit barrier is negative");
  job.meeting.run_id = job.run_id;
  return job;
}

}  // namespace

/// One node's part in a job: the rounds that it is in, what it tells the others, and what
/// it orders where it leads them. All of it is on the reactor.
class launch_agent::core {
 public:
  core(runtime& rt, launch_options job)
      : runtime_(rt),
        job_(checked_job(std::move(job))),
        meet_(rt, job_.meeting, node_description(job_.host, job_.workers, job_.role)),
        tally_(job_.max_restarts, job_.restart_window),
        records_(job_, own_host_name(), rt.home().now()),
        store_(rt, job_),
        workers_(rt, job_, records_, store_,
                 {[this] { to_post_.set(); }, [this] { return may_start(); }}) {
    using source = reporter::job_source;
    shown_ = std::make_shared<const source>(
        [status = records_.status()] { return status->report(); });
    access::core(runtime_).reports().tell_of_job(shown_);
  }

  task<launch_result> run();
  void end(int signal);
  [[nodiscard]] pid_t pid_of(int rank) const noexcept { return workers_.pid_of(rank); }

 private:
  using notices = std::map<std::string, std::string>;

  void drop_workers() noexcept;
  [[nodiscard]] task<void> answer_probes();
  [[nodiscard]] task<void> end_with_guard();
  [[nodiscard]] const char* advice() const;
  [[nodiscard]] task<void> attend();
  [[nodiscard]] task<void> go_through_rounds();
  void end_beside_closed_run();
  [[nodiscard]] task<std::optional<round>> next_round();
  void begin_round(round next);
  [[nodiscard]] task<void> go_through_round();
  [[nodiscard]] task<void> until_over(round_end& how);
  [[nodiscard]] task<void> until_barrier_ends();
  [[nodiscard]] task<void> keep_posting();
  [[nodiscard]] task<void> until_verdict();
  [[nodiscard]] task<void> drain();
  [[nodiscard]] task<void> finish();
  [[nodiscard]] task<void> until_heard();
  [[nodiscard]] task<void> gather_results();

  void read(const notices& told);
  [[nodiscard]] task<void> lead();
  [[nodiscard]] task<void> open_store();
  void obey();
  [[nodiscard]] bool may_start() const noexcept { return signal_ == 0 && !is_over_; }
  void tell_changes(const round& next) const;
  [[nodiscard]] std::string notice() const;
  [[nodiscard]] bool may_grow() const;
  void note_departure(bool is_lost);
  void give_up(std::string cause);
  void tell(const std::string& line) const {
    if (job_.told) job_.told(line);
  }

  runtime& runtime_;
  launch_options job_;
  rendezvous meet_;
  restart_tally tally_;
  job_records records_;
  std::shared_ptr<const reporter::job_source> shown_;  ///< in dumps
  attempt_store store_;
  node_workers workers_;
  time_point asked_at_{};  ///< for the round

  std::optional<round> round_;
  std::string leader_id_;
  std::optional<job_leader> leader_;

  std::map<std::string, node_report> reports_;  ///< of this round
  job_orders orders_;                           ///< of this round
  event to_post_;

  int signal_ = 0;
  event to_end_;
  bool is_node_awaited_ = false;  ///< it waits until this round lets it in
  bool is_over_ = false;          ///< for this node: it leaves
  bool is_fenced_ = false;        ///< its workers were killed, since it was lost
  launch_result result_;
};

task<launch_result> launch_agent::core::run() {
  // On every path, also where the agent itself lives on, and behind the tasks that use
  // the group.
  struct ended {
    core& self;
    ~ended() { self.drop_workers(); }
  } const at_the_end{*this};
  co_await scope::run([this](scope& s) -> task<void> {
    workers_.begin(s);
    // It may have been told to end before it began.
    if (signal_ == 0) co_await when_any(attend(), answer_probes(), end_with_guard());
    // What is decided about workers does not wait for the console; the job's end does.
    drop_workers();
  });
  result_.signal = signal_;
  result_.restarts = static_cast<std::size_t>(tally_.total());
  if (signal_ != 0) result_.is_success = false;
  records_.note_result(result_, runtime_.home().now());
  co_return std::move(result_);
}

/// Ends what workers have left, and their store.
void launch_agent::core::drop_workers() noexcept {
  workers_.drop();
  store_.end();
}

/// Does not end by itself. A job runs also where probes get no answer.
task<void> launch_agent::core::answer_probes() {
  std::optional<health_endpoint> endpoint;
  if (!job_.health_endpoint.empty()) {
    try {
      endpoint.emplace(access::core(runtime_).user(), job_.health_endpoint, [this] {
        return records_.status()->answer(runtime_.home().now());
      });
    } catch (const std::runtime_error& e) {
      tell(e.what());
    }
  }
  if (endpoint) co_await endpoint->serve();
  co_await sleep_for(duration::max());
}

/// Does not end by itself. Without a guard nothing would end what workers have started,
/// if this process were killed; nor can other workers start.
task<void> launch_agent::core::end_with_guard() {
  if (job_.guard) {
    co_await access::core(*job_.guard).ended(access::core(runtime_).user());
    tell(fmt::format("the guard (pid {}) was killed: the workers are told to end",
                     job_.guard->pid()));
    if (signal_ == 0) end(SIGTERM);
  }
  co_await sleep_for(duration::max());
}

task<void> launch_agent::core::attend() {
  try {
    co_await meet_.run([this]() -> task<void> { co_await go_through_rounds(); });
  } catch (const rendezvous_error& e) {
    if (e.kind() == rendezvous_error_kind::bad_options) throw;
    give_up(e.what());
    if (e.kind() == rendezvous_error_kind::no_coordinator) result_.cause += advice();
    result_.is_success = false;
  }
  co_await workers_.end(SIGTERM, group_end::other);
}

/// Says what outlives the host of a store that one of the nodes serves.
const char* launch_agent::core::advice() const {
  const bool ends_with_host = job_.meeting.backend == "tcp" ||
                              job_.meeting.backend == "manual" ||
                              job_.meeting.backend == "standalone";
  return ends_with_host ? "; the host that has served the endpoint is lost, which the "
                          "backend etcd would have outlived"
                        : "";
}

// -------------------------------------------------------------------------------- Rounds

task<void> launch_agent::core::go_through_rounds() {
  while (!is_over_) {
    std::optional<round> next;
    try {
      next = co_await next_round();
    } catch (const rendezvous_error& e) {
      // A node that has workers has lost its job.
      if (e.kind() != rendezvous_error_kind::closed ||
          (workers_.has_any() && !is_fenced_))
        throw;
      end_beside_closed_run();
      co_return;
    }
    if (next) {
      begin_round(std::move(*next));
      co_await go_through_round();
    }
    if (signal_ != 0) {
      co_await drain();
      co_return;
    }
  }
  co_await finish();
}

/// A spare is not needed any longer. One that came to a run that was over has done
/// nothing, and its starter may have meant another one.
void launch_agent::core::end_beside_closed_run() {
  result_.is_success = meet_.was_open();
  if (result_.is_success) {
    tell(fmt::format("the run {} is over: no worker is started here", job_.run_id));
  } else {
    result_.cause = fmt::format(
        "the run {} was closed before: no worker is started, and a new run needs "
        "another id",
        job_.run_id);
  }
}

/// Returns nothing if this node is to leave. Workers may run on meanwhile.
task<std::optional<round>> launch_agent::core::next_round() {
  asked_at_ = runtime_.home().now();
  // `next` keeps the limit, and a spare waits without one.
  const auto note_waiting = [this] {
    records_.status()->note_waiting(time_point::max());
  };
  if (!workers_.has_any()) note_waiting();
  is_fenced_ = false;
  auto fence = [&]() -> task<void> {
    co_await meet_.left_out();
    is_fenced_ = workers_.has_any();
    if (is_fenced_) {
      // Others may hold the ranks of these workers already (rule L-a).
      tell("the others took this node for lost: its workers are killed");
      workers_.stop(SIGKILL, group_end::other);
      workers_.kill();
      note_waiting();
    }
    co_await sleep_for(duration::max());
  };
  auto first = co_await when_any(meet_.next(), fence(), to_end_.wait());
  if (is_fenced_) {
    co_await workers_.end(SIGKILL, group_end::other);
    workers_.forget();
  }
  co_return std::move(std::get<0>(first));
}

/// Says which nodes have gone and come since the round before.
void launch_agent::core::tell_changes(const round& next) const {
  for (const round_node& before : round_->nodes) {
    if (!next.find(before.id))
      tell(fmt::format("node {} on {} is gone", before.rank, before.host));
  }
  for (const round_node& now : next.nodes) {
    if (!round_->find(now.id)) {
      tell(fmt::format("node {} on {} has come in round {}", now.rank, now.host,
                       next.number));
    }
  }
}

void launch_agent::core::begin_round(round next) {
  if (round_) tell_changes(next);
  round_ = std::move(next);
  const auto first = std::find_if(
      round_->nodes.begin(), round_->nodes.end(),
      [](const round_node& node) { return !node.id.starts_with(torchrun_id); });
  MW_ASSERT(first != round_->nodes.end(), "this node is in its round");
  leader_id_ = first->id;
  job_orders before = leader_ ? leader_->last_orders() : job_orders();
  if (!store_.is_served()) before.store.clear();
  leader_.reset();
  if (leader_id_ == meet_.id()) {
    leader_.emplace(*round_, meet_.id(), job_.scope, tally_);
    leader_->recall(std::move(before));
  }
  reports_.clear();
  orders_ = {};
  workers_.enter(*round_, meet_.id(), leader_id_);
  workers_.report().drains = workers_.report().leaves = is_node_awaited_ = false;
  to_post_.set();
  records_.note_round(*round_, *round_->find(meet_.id()), job_.meeting.backend,
                      runtime_.home().now() - asked_at_);
}

/// Ends when the round is over, or the job for this node.
task<void> launch_agent::core::go_through_round() {
  round_end how = round_end::left;
  co_await when_any(keep_posting(), until_verdict(), until_over(how),
                    until_barrier_ends(), to_end_.wait());
  workers_.report().before = how;
}

/// Ends when there is to be another round, and says how this one ended.
task<void> launch_agent::core::until_over(round_end& how) {
  for (;;) {
    const round_change change = co_await meet_.changed();
    if (change == round_change::node_waits) {
      is_node_awaited_ = true;
      if (!may_grow()) continue;
    } else if (change == round_change::closed) {
      // The orders that have ended the job may be on their way, too.
      co_await sleep_for(last_orders);
      give_up(fmt::format("the run {} was closed", job_.run_id));
    } else if (change != round_change::asked && !meet_.is_left_out()) {
      if (change == round_change::node_lost) how = round_end::lost;
      note_departure(how == round_end::lost);
    }
    // Where this node is lost itself, the others have counted that, and go on without it.
    co_return;
  }
}

/// A lost node counts as a restart: a node that fails again and again ends the job.
void launch_agent::core::note_departure(bool is_lost) {
  if (is_lost && !tally_.has_left(runtime_.home().now()))
    give_up("a node is lost, and no restarts are left");
  if (!workers_.has_any() || job_.scope == restart_scope::worker) return;
  tell(fmt::format("a node {}: all workers are ended", is_lost ? "is lost" : "has left"));
  workers_.stop(SIGTERM, group_end::other);
}

/// Ends the job for this node.
void launch_agent::core::give_up(std::string cause) {
  result_.cause = std::move(cause);
  is_over_ = true;
}

/// Another node is let in by the leader, while all workers run.
bool launch_agent::core::may_grow() const {
  const auto is_busy = [&](const auto& each) {
    const node_report& said = each.second;
    return said.attempt == orders_.attempt && !said.has_ended && said.failures.empty() &&
           !said.drains;
  };
  return is_node_awaited_ && leader_ && orders_.attempt > 0 &&
         std::all_of(reports_.begin(), reports_.end(), is_busy);
}

/// This node leaves where the workers of others take too long.
task<void> launch_agent::core::until_barrier_ends() {
  co_await workers_.until_barrier_ends();
  tell(fmt::format("the workers of other nodes have not ended within {}",
                   duration_text(job_.exit_barrier)));
  workers_.report().leaves = true;
  result_.is_success = true;
  is_over_ = true;
}

task<void> launch_agent::core::keep_posting() {
  for (;;) {
    co_await to_post_.wait();
    to_post_.reset();
    co_await meet_.post(notice());
  }
}

std::string launch_agent::core::notice() const {
  job_notice n;
  n.report = workers_.report();
  n.report.restarts = tally_.total();
  n.report.is_ending = workers_.is_ending();
  n.report.recent_restarts = tally_.recent(runtime_.home().now());
  if (leader_) n.orders = leader_->orders();
  return n.encode();
}

/// Does what is ordered, and ends when the orders are that the job has ended, or when
/// another node is let in.
task<void> launch_agent::core::until_verdict() {
  while (orders_.verdict == job_verdict::none) {
    const notices told = co_await meet_.posted();
    read(told);
    co_await lead();
    obey();
    if (may_grow()) co_return;
  }
  is_over_ = true;
  result_.is_success = orders_.verdict == job_verdict::success;
  result_.failures = orders_.failures;
  result_.cause = orders_.cause;
  // A cause that no worker has given says so itself.
  const bool by_worker = !result_.is_success && result_.cause.empty();
  const bool were_restarts = tally_.total() > 0;
  if (by_worker && were_restarts && !tally_.has_left(runtime_.home().now()))
    tell(fmt::format("no restarts are left, of {}", job_.max_restarts));
}

/// A node that leaves has no workers that the others could still hear.
task<void> launch_agent::core::drain() {
  workers_.report().drains = true;
  if (round_ && round_->nodes.size() > 1) co_await meet_.post(notice());
  co_await workers_.end(signal_, group_end::other);
  co_await meet_.leave(departure::draining);
}

task<void> launch_agent::core::finish() {
  co_await workers_.end(SIGTERM, group_end::failure);
  if (orders_.verdict == job_verdict::success && job_.takes_results && workers_.has_any())
    co_await gather_results();
  workers_.report().leaves = true;
  if (!leader_) {
    co_await meet_.post(notice());
  } else if (orders_.verdict != job_verdict::none) {
    co_await until_heard();
  }
  if (orders_.verdict == job_verdict::none && result_.cause.empty()) co_return;
  // Spares are not needed any longer. The leader may die before it has said so.
  try {
    co_await meet_.close();
  } catch (const rendezvous_error& e) {
    tell(e.what());
  }
}

task<void> launch_agent::core::gather_results() {
  try {
    result_.results = co_await workers_.results(orders_.store);
  } catch (const store_error& e) {
    result_.cause = fmt::format("results are lost: {}", e.what());
    result_.is_success = false;
  }
}

/// The orders end with their leader, so that it stays until the others leave.
task<void> launch_agent::core::until_heard() {
  auto listening = [this]() -> task<void> {
    while (!leader_->have_left(reports_)) {
      const notices told = co_await meet_.posted();
      read(told);
    }
  };
  co_await when_any(listening(), sleep_for(job_.grace + last_orders), to_end_.wait());
}

// -------------------------------------------------------------------------------- Orders

void launch_agent::core::read(const notices& told) {
  for (const auto& [node, text] : told) {
    try {
      job_notice said = job_notice::decode(text);
      if (node == leader_id_ && said.orders) orders_ = std::move(*said.orders);
      reports_[node] = std::move(said.report);
    } catch (const wire_error& e) {
      tell(fmt::format("node {} tells what makes no sense: {}", node, e.what()));
    }
  }
}

task<void> launch_agent::core::lead() {
  if (!leader_) co_return;
  bool has_changed = leader_->hear(reports_, runtime_.home().now());
  if (leader_->needs_store()) {
    co_await open_store();
    has_changed = true;
  }
  if (has_changed) to_post_.set();
}

/// Where torchrun's nodes take part, the store is theirs: the one at which all have met.
task<void> launch_agent::core::open_store() {
  const bool has_outsiders = std::any_of(
      round_->nodes.begin(), round_->nodes.end(),
      [](const round_node& node) { return node.id.starts_with(torchrun_id); });
  if (has_outsiders) {
    leader_->set_store(job_.meeting.endpoint);
    co_return;
  }
  try {
    leader_->set_store(co_await store_.serve());
  } catch (const std::system_error& e) {
    leader_->give_up(fmt::format("the workers' store cannot be served: {}", e.what()));
  }
}

void launch_agent::core::obey() {
  tally_.note(orders_.restarts, orders_.recent_restarts, runtime_.home().now());
  records_.note_restarts(static_cast<std::size_t>(tally_.total()));
  if (orders_.verdict != job_verdict::none) return;
  workers_.obey(orders_, reports_);
}

void launch_agent::core::end(int signal) {
  MW_ASSERT(signal > 0, "a signal ends it");
  if (signal_ == 0) {
    signal_ = signal;
    records_.note_ending(fmt::format("signal {} has ended the job", signal));
    to_end_.set();
    return;
  }
  workers_.kill();
  workers_.stop_showing();
}

// ---------------------------------------------------------------------------------------

launch_agent::launch_agent(runtime& rt, launch_options options)
    : core_(std::make_unique<core>(rt, std::move(options))) {}

launch_agent::~launch_agent() = default;

task<launch_result> launch_agent::run() { return core_->run(); }

namespace {

std::string text_of_failure(const launch_result& how) {
  if (how.signal != 0)
    return fmt::format("launch: the job was ended by signal {}", how.signal);
  if (how.failures.empty()) return "launch: " + how.cause;
  const worker_failure& first = how.failures.front();
  return fmt::format("launch: {}: {}", text_of_end(first.rank, first.reason),
                     plain_text(first.traceback));
}

}  // namespace

job_error::job_error(launch_result how)
    : result_(std::make_shared<const launch_result>(std::move(how))),
      text_(std::make_shared<const std::string>(text_of_failure(*result_))) {}

task<std::vector<std::string>> launch(runtime& rt, launch_options options) {
  options.takes_results = true;
  launch_agent agent(rt, std::move(options));
  launch_result end = co_await agent.run();
  if (!end.is_success) throw job_error(std::move(end));
  co_return std::move(end.results);
}

void launch_agent::end(int signal) { core_->end(signal); }
pid_t launch_agent::pid_of(int rank) const noexcept { return core_->pid_of(rank); }

}  // namespace manyworlds::inline v0
