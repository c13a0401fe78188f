#include "launch/node_workers.hpp"

#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <system_error>
#include <utility>

#include "launch/cpu_topology.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/store/tcp_store.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// How long results of other nodes are waited for: they stand in the store already.
constexpr duration result_wait = std::chrono::seconds(10);

/// Of one attempt, to other nodes.
constexpr std::size_t most_told_verdicts = 64;

std::string result_key(int rank) { return fmt::format("manyworlds/result/{}", rank); }

const char* plural(std::size_t count) { return count == 1 ? "" : "s"; }

}  // namespace

node_workers::node_workers(runtime& rt, const launch_options& job, job_records& records,
                           attempt_store& store, listener to)
    : runtime_(rt), job_(job), store_(store), listener_(std::move(to)) {
  output_.cpus = cpus_of_workers(job_);
  output_.records = &records;
}

/// A job runs without files where the folder cannot be made, and says so.
void node_workers::begin(scope& s) {
  output_.showing = &s;
  has_ended_.set();
  try {
    output_.folder = std::make_unique<run_folder>(job_.log_folder, job_.run_id);
  } catch (const std::system_error& e) {
    tell(fmt::format(
        "there are no log and error files, and workers print to the console: {}",
        e.what()));
    output_.folder = std::make_unique<run_folder>("", job_.run_id);
  }
  output_.records->begin(output_.folder->path(),
                         [this](const std::string& t) { tell(t); });
}

void node_workers::enter(const round& in, const std::string& self,
                         const std::string& leader) {
  round_ = &in;
  self_ = self;
  leader_ = leader;
}

void node_workers::obey(const job_orders& orders, const reports_t& reports) {
  if (group_ && orders.attempt > group_->attempt())
    group_->stop(SIGTERM, group_end::other);
  if (orders.store.empty()) return;
  if (orders.attempt > ordered_) {
    ordered_ = orders.attempt;
    output_.showing->spawn(start_attempt(orders, round_->number));
    return;
  }
  if (!group_ || group_->attempt() != orders.attempt) return;
  told_ = orders.restarts;
  for (const auto& [rank, incarnation] : orders.granted) group_->grant(rank, incarnation);
  for (const std::int32_t rank : orders.denied) group_->deny(rank);
  group_->hear(reports);
  for (const auto& [node, said] : reports) {
    if (said.attempt == orders.attempt && !said.failures.empty())
      end_because(node, said.failures.front());
    if (said.drains && job_.scope == restart_scope::group)
      group_->stop(SIGTERM, group_end::other);
  }
}

/// A failure that no replacement mends ends the attempt on all nodes.
void node_workers::end_because(const std::string& node, const worker_failure& f) {
  if (node != self_ && !group_->is_told_to_stop()) {
    tell(fmt::format("on {}, {}: all workers are ended", f.host, text_of_failed(f)));
  }
  group_->stop(SIGTERM, group_end::failure);
}

/// Starts the workers once those of the attempt before have ended, unless the round was
/// over meanwhile: then it is ordered anew.
task<void> node_workers::start_attempt(job_orders ordered, std::uint64_t number) {
  co_await end(SIGTERM, group_end::failure);
  if (!listener_.may_start() || round_->number != number) {
    if (ordered_ == ordered.attempt) --ordered_;
    co_return;
  }
  tell_start(ordered);
  make_group(ordered);
  has_ended_.reset();
  begins_.set();
  begins_.reset();
  listener_.changed();
  // A cancellation may drop it first: its tasks are unwound while it lives.
  const std::shared_ptr<worker_group> running = group_;
  co_await running->run();
  if (job_.takes_results && running->is_done())
    co_await share_results(*running, ordered.store);
  // What they no longer see accuses none.
  report_.testimonies.clear();
  report_.has_ended = true;
  report_.is_done = running->is_done();
  listener_.changed();
  has_ended_.set();
}

void node_workers::tell_start(const job_orders& ordered) {
  const bool is_restart = ordered.restarts > std::exchange(told_, ordered.restarts);
  // To a node that has just come the restarts before are none.
  if (group_ && is_restart) {
    const std::string all = round_->size() == 1
                                ? "the worker is"
                                : fmt::format("all {} workers are", round_->size());
    tell(fmt::format("{} started again, restart {} of {}", all, ordered.restarts,
                     job_.max_restarts));
  }
  const std::size_t nodes = round_->nodes.size();
  const auto workers = static_cast<std::size_t>(round_->size());
  const std::string attempt =
      ordered.attempt > 1 ? fmt::format(", attempt {}", ordered.attempt) : "";
  tell(fmt::format("run {}, round {}{}: {} worker{} on {} node{}, store {}", job_.run_id,
                   round_->number, attempt, workers, plural(workers), nodes,
                   plural(nodes), ordered.store));
}

void node_workers::make_group(const job_orders& ordered) {
  report_.attempt = ordered.attempt;
  report_.leader = leader_;
  report_.has_ended = report_.is_done = false;
  report_.failures.clear();
  report_.incarnations.clear();
  report_.testimonies.clear();
  report_.verdicts.clear();
  if (!is_leading()) store_.end_serving();
  group_place place;
  place.nodes = *round_;
  place.node = self_;
  place.attempt = ordered.attempt;
  place.restarts = ordered.restarts;
  place.store = ordered.store;
  place.store_here = store_.reach(ordered.store, *output_.showing);
  place.incarnations = ordered.granted;
  worker_group::listener to;
  to.failed = [this](const worker_failure& f) {
    report_.failures.push_back(f);
    listener_.changed();
  };
  to.wants = [this](std::int32_t rank, incarnation_t incarnation) {
    report_.incarnations[rank] = incarnation;
    listener_.changed();
  };
  to.testified = [this](std::vector<worker_testimony> all) {
    report_.testimonies = std::move(all);
    listener_.changed();
  };
  to.convicted = [this](told_verdict v) {
    if (report_.verdicts.size() == most_told_verdicts) return;
    report_.verdicts.push_back(std::move(v));
    listener_.changed();
  };
  to.told = [this](const std::string& line) { tell(line); };
  group_ = std::make_shared<worker_group>(runtime_, job_, output_, std::move(place),
                                          std::move(to));
  output_.records->note_attempt();
  report_.first_rank = group_->first_rank();
  report_.world_size = group_->world_size();
}

void node_workers::stop(int signal, group_end why) {
  if (group_) group_->stop(signal, why);
}

task<void> node_workers::end(int signal, group_end why) {
  stop(signal, why);
  co_await has_ended_.wait();
}

void node_workers::kill() noexcept {
  if (group_) group_->kill();
}

void node_workers::stop_showing() noexcept {
  if (output_.shown_on) output_.shown_on->give_up();
}

void node_workers::forget() {
  group_.reset();
  report_ = {};
  ordered_ = 0;
}

task<void> node_workers::until_barrier_ends() {
  for (;;) {
    co_await has_ended_.wait();
    const bool waits = report_.is_done && !is_leading();
    co_await when_any(sleep_for(waits ? job_.exit_barrier : duration::max()),
                      begins_.wait());
    if (has_ended_.is_set() && report_.is_done) co_return;
  }
}

/// The results of several nodes go through the attempt's store, which lasts until all
/// nodes leave.
task<void> node_workers::share_results(const worker_group& of, std::string address) {
  if (round_->nodes.size() == 1) co_return;
  tcp_store_options how;
  how.secret = job_.meeting.secret;
  tcp_store shared(runtime_, std::move(address), how);
  std::vector<store_entry> entries;
  int rank = of.first_rank();
  for (std::string& each : of.results())
    entries.push_back({result_key(rank++), std::move(each)});
  try {
    co_await shared.multi_set(std::move(entries));
  } catch (const store_error& e) {
    tell(fmt::format("results are not told: {}", e.what()));
  }
}

task<std::vector<std::string>> node_workers::results(std::string store) {
  if (round_->nodes.size() == 1) co_return group_->results();
  tcp_store_options how;
  how.secret = job_.meeting.secret;
  tcp_store shared(runtime_, std::move(store), how);
  std::vector<std::string> keys;
  for (int rank = 0; rank < round_->size(); ++rank) keys.push_back(result_key(rank));
  co_return co_await shared.multi_get(std::move(keys), result_wait);
}

bool node_workers::is_ending() const noexcept {
  return group_ && group_->is_told_to_stop();
}

pid_t node_workers::pid_of(int rank) const noexcept {
  return group_ ? group_->pid_of(rank) : 0;
}

}  // namespace manyworlds::inline v0::detail
