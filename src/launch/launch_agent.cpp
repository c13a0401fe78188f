#include "manyworlds/launch/launch_agent.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <stdexcept>
#include <utility>

#include "duration_text.hpp"
#include "launch/coordinator.hpp"
#include "launch/error_record.hpp"
#include "launch/log_follower.hpp"
#include "launch/worker_variables.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/io/signals.hpp"
#include "manyworlds/launch/supervised_process.hpp"
#include "manyworlds/serve/hosted_store.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace {

constexpr std::size_t most_workers = 4096;
constexpr std::size_t longest_run_name = 40;
const char* const how_to_learn_more =
    "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html";

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
  return job;
}

std::string own_host() {
  char name[256] = "";
  return ::gethostname(name, sizeof name - 1) == 0 && name[0] ? name : "localhost";
}

std::int64_t seconds_of_today() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string text_of_end(int rank, const exit_reason& end) {
  switch (end.kind) {
    case exit_kind::exited:
      return fmt::format("rank {} (pid {}) exited with code {}", rank, end.pid, end.code);
    case exit_kind::signaled:
      return fmt::format("rank {} (pid {}) killed by signal {} ({})", rank, end.pid,
                         end.signal, received_signal{end.signal}.text());
    default:
      return fmt::format("rank {}: {}", rank, end.text());
  }
}

/// Restarts within a time, or ever.
class restarts_left {
 public:
  restarts_left(std::size_t most, std::optional<duration> window)
      : most_(most), window_(window) {}

  [[nodiscard]] bool take(time_point now) {
    const auto is_old = [&](time_point t) { return window_ && now - t >= *window_; };
    while (!taken_.empty() && is_old(taken_.front())) taken_.pop_front();
    if (taken_.size() >= most_) return false;
    taken_.push_back(now);
    return true;
  }

 private:
  std::size_t most_;
  std::optional<duration> window_;
  std::deque<time_point> taken_;
};

/// The files of one start of a worker; empty names where there are none.
struct worker_files {
  std::string output;
  std::string errors;
  std::string record;
};

/// The folder of a run: attempt_N/LOCAL_RANK/{stdout.log,stderr.log,error.json}, as
/// torchrun has it. Nothing in it is ever deleted.
class run_folder {
 public:
  /// Errors: std::system_error naming the folder.
  run_folder(const std::string& base, const std::string& run_id) {
    if (base.empty()) return;
    make(base);
    path_ = fmt::format("{}/{}_XXXXXX", base, run_id);
    if (!::mkdtemp(path_.data()))
      throw std::system_error(errno, std::generic_category(), "the log folder " + base);
  }

  [[nodiscard]] worker_files files_of(std::size_t attempt, int local_rank,
                                      std::size_t incarnation) const {
    if (path_.empty()) return {};
    const std::string folder = fmt::format("{}/attempt_{}", path_, attempt);
    const std::string place = fmt::format("{}/{}", folder, local_rank);
    make(folder);
    make(place);
    const std::string record =
        incarnation == 1 ? "error.json" : fmt::format("error.{}.json", incarnation);
    return {place + "/stdout.log", place + "/stderr.log", place + "/" + record};
  }

 private:
  static void make(const std::string& folder) {
    for (std::size_t end = folder.find('/', 1);; end = folder.find('/', end + 1)) {
      const std::string part = folder.substr(0, end);
      if (::mkdir(part.c_str(), 0755) != 0 && errno != EEXIST)
        throw std::system_error(errno, std::generic_category(), "the folder " + part);
      if (end == std::string::npos) return;
    }
  }

  std::string path_;
};

task<void> show(std::shared_ptr<log_follower> one) { co_await one->run(); }

}  // namespace

/// The workers of one node, and what was decided about them. All of it is on the reactor.
class launch_agent::core {
 public:
  core(runtime& rt, launch_options job)
      : runtime_(rt),
        job_(checked_job(std::move(job))),
        host_(own_host()),
        budget_(job_.max_restarts, job_.restart_window) {}

  task<launch_result> run();
  void end(int signal);
  [[nodiscard]] pid_t pid_of(int rank) const noexcept;

 private:
  struct worker {
    explicit worker(int at, const launch_options& job)
        : local_rank(at),
          budget(job.max_restarts_per_rank.value_or(job.max_restarts),
                 job.restart_window) {}

    const int local_rank;
    restarts_left budget;
    std::size_t incarnation = 1;
    worker_files files;
    std::unique_ptr<supervised_process> process;
    std::vector<std::shared_ptr<log_follower>> followers;
  };

  struct workers_ended {
    core& agent;
    ~workers_ended() { agent.workers_.clear(); }
  };

  void make_folder();
  [[nodiscard]] task<void> run_attempts();
  [[nodiscard]] task<void> attempt();
  [[nodiscard]] task<void> live(worker& w);
  [[nodiscard]] task<exit_reason> one_life(worker& w, time_point failed);
  [[nodiscard]] task<void> kill_descendants(worker& w);
  [[nodiscard]] task<void> tell_replacement(worker& w, time_point failed);
  [[nodiscard]] task<void> stop_all_when_told();
  [[nodiscard]] task<void> put_down(worker& w);

  [[nodiscard]] process_options describe(worker& w);
  void set_streams(worker& w, process_options& how);
  void follow(worker& w, const std::string& path, int to);
  void note_failure(const worker& w, const exit_reason& end);
  [[nodiscard]] bool may_replace(worker& w, const exit_reason& end);
  void stop_all() noexcept;
  void tell(const std::string& line) const;
  [[nodiscard]] int rank_of(const worker& w) const {
    return round_.nodes.front().first_rank + w.local_rank;
  }

  runtime& runtime_;
  const launch_options job_;
  const std::string host_;
  restarts_left budget_;
  std::optional<run_folder> folder_;
  std::unique_ptr<console> console_;
  scope* showing_ = nullptr;  ///< in which the followers run

  round round_;
  std::size_t attempt_ = 0;
  std::unique_ptr<hosted_store> store_;
  std::vector<std::unique_ptr<worker>> workers_;
  std::size_t living_ = 0;
  event none_lives_;
  event to_stop_;
  event to_kill_;
  int signal_ = 0;
  launch_result result_;
};

/// What is decided about workers does not wait for the console. The end of the job does.
task<launch_result> launch_agent::core::run() {
  co_await scope::run([this](scope& s) -> task<void> {
    showing_ = &s;
    // On every path, also where the agent itself lives on.
    const workers_ended at_the_end{*this};
    co_await run_attempts();
  });
  co_return std::move(result_);
}

task<void> launch_agent::core::run_attempts() {
  make_folder();
  node_description self(host_, job_.workers, job_.role);
  self.id = "this";
  round_.run = job_.run_id;
  round_.nodes.emplace_back(std::move(self));
  round_.assign_ranks();
  for (;; ++attempt_) {
    round_.number = attempt_ + 1;
    result_.failures.clear();
    // It may have been told to end before it began.
    if (signal_ == 0) co_await attempt();
    result_.signal = signal_;
    if (signal_ != 0) co_return;
    if (result_.failures.empty()) {
      result_.is_success = true;
      co_return;
    }
    const worker_failure& first = result_.failures.front();
    const bool could_start = first.reason.kind != exit_kind::not_started;
    if (!could_start || !budget_.take(runtime_.home().now())) co_return;
    ++result_.restarts;
    tell(fmt::format("all {} workers are started again, restart {} of {}", job_.workers,
                     result_.restarts, job_.max_restarts));
  }
}

/// A job runs without files where the folder cannot be made, and says so.
void launch_agent::core::make_folder() {
  try {
    folder_.emplace(job_.log_folder, job_.run_id);
  } catch (const std::system_error& e) {
    tell(fmt::format("there are no log and error files: {}", e.what()));
    folder_.emplace("", job_.run_id);
  }
}

/// Starts all workers, and ends when none lives.
task<void> launch_agent::core::attempt() {
  to_stop_.reset();
  to_kill_.reset();
  none_lives_.reset();
  workers_.clear();
  store_.reset();
  store_ = std::make_unique<hosted_store>(runtime_,
                                          fmt::format("127.0.0.1:{}", job_.store_port));
  for (int i = 0; i < job_.workers; ++i)
    workers_.push_back(std::make_unique<worker>(i, job_));
  living_ = workers_.size();
  tell(fmt::format("run {}, round {}: {} worker{} on 1 node, store {}", job_.run_id,
                   round_.number, job_.workers, job_.workers == 1 ? "" : "s",
                   store_->address()));
  co_await scope::run([this](scope& s) -> task<void> {
    s.spawn(stop_all_when_told());
    for (const auto& each : workers_) s.spawn(live(*each));
    co_return;
  });
}

/// One rank, through all processes that have it in this attempt.
task<void> launch_agent::core::live(worker& w) {
  for (time_point seen{}; !to_stop_.is_set();) {
    const exit_reason end = co_await one_life(w, seen);
    if (end.is_success()) break;
    if (to_stop_.is_set()) {
      // It may have failed by itself, at the same time as the first.
      if (signal_ == 0 && end.kind != exit_kind::stopped) note_failure(w, end);
      break;
    }
    seen = runtime_.home().now();
    if (!may_replace(w, end)) {
      note_failure(w, end);
      stop_all();
      break;
    }
    ++w.incarnation;
    ++result_.restarts;
    tell(fmt::format("{}; the others go on", text_of_end(rank_of(w), end)));
    co_await kill_descendants(w);
  }
  if (--living_ == 0) none_lives_.set();
}

/// `failed` is when the process before it did.
task<exit_reason> launch_agent::core::one_life(worker& w, time_point failed) {
  process_options how = describe(w);
  w.process = std::make_unique<supervised_process>(runtime_, std::move(how));
  exit_reason end;
  co_await scope::run([&](scope& s) -> task<void> {
    if (w.incarnation > 1) s.spawn(tell_replacement(w, failed));
    end = co_await w.process->ended();
    for (const auto& each : w.followers) each->note_end();
  });
  co_return end;
}

/// What a dead worker has started may hold what its successor needs.
task<void> launch_agent::core::kill_descendants(worker& w) {
  try {
    co_await w.process->stop(grace(duration::zero()));
  } catch (const process_error& e) {
    tell(e.what());
  }
}

task<void> launch_agent::core::tell_replacement(worker& w, time_point failed) {
  try {
    co_await w.process->started();
  } catch (const process_error&) {
    // Its end says so, too.
    co_return;
  }
  const pid_t pid = w.process->pid();
  // One that has ended already is told of by its end.
  if (pid == 0) co_return;
  tell(fmt::format("rank {} started again as pid {}, incarnation {}, after {}",
                   rank_of(w), pid, w.incarnation,
                   duration_text(runtime_.home().now() - failed)));
}

task<void> launch_agent::core::stop_all_when_told() {
  co_await when_any(to_stop_.wait(), none_lives_.wait());
  if (!to_stop_.is_set()) co_return;
  co_await scope::run([this](scope& s) -> task<void> {
    for (const auto& each : workers_) {
      if (each->process) s.spawn(put_down(*each));
    }
    co_return;
  });
}

/// Ends a worker with all that it has started: by the signal that came, or SIGTERM, and
/// after the grace by SIGKILL.
task<void> launch_agent::core::put_down(worker& w) {
  supervised_process& process = *w.process;
  try {
    if (signal_ != 0 && signal_ != SIGTERM) {
      auto asking = [&]() -> task<void> {
        // One that is about to run would not get it.
        co_await process.started();
        process.signal(signal_);
        co_await process.ended();
      };
      co_await when_any(asking(), to_kill_.wait(), sleep_for(job_.grace));
    } else {
      auto asking = [&]() -> task<void> { co_await process.stop(grace(job_.grace)); };
      co_await when_any(asking(), to_kill_.wait());
    }
    co_await process.stop(grace(duration::zero()));
  } catch (const process_error& e) {
    tell(e.what());
  }
}

// ----------------------------------------------------------------------------- One start

process_options launch_agent::core::describe(worker& w) {
  try {
    w.files = folder_->files_of(attempt_, w.local_rank, w.incarnation);
  } catch (const std::system_error& e) {
    tell(fmt::format("rank {} has no files: {}", rank_of(w), e.what()));
    w.files = {};
  }
  const std::string address = store_->address();
  const std::size_t colon = address.rfind(':');
  worker_place place;
  place.local_rank = w.local_rank;
  place.attempt = attempt_;
  place.incarnation = w.incarnation;
  place.store_host = address.substr(0, colon);
  place.store_port = static_cast<std::uint16_t>(std::stoi(address.substr(colon + 1)));
  place.error_file = w.files.record;
  process_options how(job_.program);
  for (const std::string& each : job_.arguments)
    how.argument(with_local_rank(each, w.local_rank));
  for (const auto& [name, value] :
       variables_of_worker(job_, round_, round_.nodes.front(), place))
    how.set(name, value);
  if (job_.guard) how.guarded_by(*job_.guard);
  set_streams(w, how);
  return how;
}

void launch_agent::core::set_streams(worker& w, process_options& how) {
  const worker_streams to = job_.streams ? job_.streams(w.local_rank) : worker_streams();
  const bool has_files = !w.files.output.empty();
  w.followers.clear();
  // What goes to a file goes there alone, and the console follows the file.
  const auto kept = [](bool to_console) {
    return to_console ? process_output::inherit() : process_output::none();
  };
  how.output(to.output_to_file && has_files ? to_file(w.files.output)
                                            : kept(to.output_to_console));
  how.errors(to.errors_to_file && has_files ? to_file(w.files.errors)
                                            : kept(to.errors_to_console));
  if (to.output_to_file && has_files && to.output_to_console)
    follow(w, w.files.output, STDOUT_FILENO);
  if (to.errors_to_file && has_files && to.errors_to_console)
    follow(w, w.files.errors, STDERR_FILENO);
}

void launch_agent::core::follow(worker& w, const std::string& path, int to) {
  const std::string prefix = job_.prefix ? job_.prefix(rank_of(w), w.local_rank) : "";
  try {
    if (!console_) console_ = std::make_unique<console>();
    w.followers.push_back(std::make_shared<log_follower>(access::core(runtime_).user(),
                                                         *console_, path, to, prefix));
  } catch (const std::system_error& e) {
    tell(fmt::format("rank {} is not shown: {}", rank_of(w), e.what()));
    return;
  }
  showing_->spawn(show(w.followers.back()));
}

// ------------------------------------------------------------------------------ Failures

bool launch_agent::core::may_replace(worker& w, const exit_reason& end) {
  if (job_.scope == restart_scope::group || end.kind == exit_kind::not_started)
    return false;
  const time_point now = runtime_.home().now();
  if (!w.budget.take(now)) {
    tell(fmt::format("rank {} has no restarts left", rank_of(w)));
    return false;
  }
  return budget_.take(now);
}

void launch_agent::core::note_failure(const worker& w, const exit_reason& end) {
  worker_failure f;
  f.rank = rank_of(w);
  f.local_rank = w.local_rank;
  f.host = host_;
  f.reason = end;
  f.time = seconds_of_today();
  std::string why_not;
  const std::optional<error_record> record =
      w.files.record.empty() ? std::nullopt : read_error_record(w.files.record, why_not);
  if (record) {
    f.error_file = w.files.record;
    f.traceback = record->traceback;
    if (record->time > 0) f.time = record->time;
  } else if (end.signal != 0) {
    f.traceback = fmt::format("Signal {} ({}) received by PID {}", end.signal,
                              received_signal{end.signal}.text(), end.pid);
  } else {
    f.traceback =
        end.kind == exit_kind::not_started ? end.text() : std::string(how_to_learn_more);
  }
  if (!why_not.empty())
    tell(fmt::format("rank {}: the error file {} {}", f.rank, w.files.record, why_not));
  tell(text_of_end(f.rank, end));
  result_.failures.push_back(std::move(f));
}

void launch_agent::core::stop_all() noexcept { to_stop_.set(); }

void launch_agent::core::end(int signal) {
  MW_ASSERT(signal > 0, "a signal ends it");
  if (signal_ == 0) {
    signal_ = signal;
  } else {
    to_kill_.set();
    if (console_) console_->give_up();
  }
  to_stop_.set();
}

pid_t launch_agent::core::pid_of(int rank) const noexcept {
  for (const auto& each : workers_) {
    if (rank_of(*each) == rank && each->process) return each->process->pid();
  }
  return 0;
}

void launch_agent::core::tell(const std::string& line) const {
  if (job_.told) job_.told(line);
}

// ---------------------------------------------------------------------------------------

launch_agent::launch_agent(runtime& rt, launch_options options)
    : core_(std::make_unique<core>(rt, std::move(options))) {}

launch_agent::~launch_agent() = default;

task<launch_result> launch_agent::run() { return core_->run(); }
void launch_agent::end(int signal) { core_->end(signal); }
pid_t launch_agent::pid_of(int rank) const noexcept { return core_->pid_of(rank); }

}  // namespace manyworlds::inline v0
