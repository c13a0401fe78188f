#include "launch/worker_group.hpp"
#include "launch/plain_text.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "duration_text.hpp"
#include "io/system_environment.hpp"
#include "launch/error_record.hpp"
#include "launch/variable_reader.hpp"
#include "launch/worker_variables.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/io/signals.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

namespace {

const char* const how_to_learn_more =
    "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html";

std::int64_t seconds_of_today() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

task<void> show(std::shared_ptr<log_follower> one) { co_await one->run(); }

}  // namespace

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

std::string text_of_failed(const worker_failure& f) {
  if (!f.reason.is_success()) return text_of_end(f.rank, f.reason);
  return fmt::format("rank {} (pid {}): {}", f.rank, f.reason.pid,
                     plain_text(f.traceback));
}

worker_group::worker_group(runtime& rt, const launch_options& job, shared_output& output,
                           group_place place, listener to)
    : runtime_(rt),
      job_(job),
      output_(output),
      place_(std::move(place)),
      node_(*place_.nodes.find(place_.node)),
      listener_(std::move(to)),
      watch_(rt, how_to_watch()) {
  for (int i = 0; i < node_.slots; ++i) {
    worker& w = *workers_.emplace_back(std::make_unique<worker>(i, job_));
    const auto first = place_.incarnations.find(rank_of(w));
    if (first != place_.incarnations.end()) w.incarnation = w.granted = first->second;
  }
  living_ = workers_.size();
}

task<void> worker_group::run() {
  auto living = [this]() -> task<void> {
    co_await scope::run([this](scope& s) -> task<void> {
      s.spawn(stop_all_when_told());
      for (const auto& each : workers_) s.spawn(live(*each));
      co_return;
    });
  };
  co_await when_any(living(), watch_.run(), write_dumps());
}

/// Workers that accuse one of another node write what they wait for.
task<void> worker_group::write_dumps() {
  for (;;) {
    co_await is_accusing_.wait();
    is_accusing_.reset();
    const std::set<int> ranks = std::exchange(to_dump_, {});
    co_await watch_.take_dumps({ranks.begin(), ranks.end()});
  }
}

/// One rank, through all processes that have it in this attempt.
task<void> worker_group::live(worker& w) {
  for (time_point seen{}; !to_stop_.is_set();) {
    const exit_reason end = co_await one_life(w, seen);
    w.is_done = end.is_success();
    if (w.is_done) break;
    if (to_stop_.is_set()) {
      // It may have failed by itself, at the same time as the first.
      if (why_ == group_end::failure && end.kind != exit_kind::stopped)
        note_failure(w, end);
      break;
    }
    seen = runtime_.home().now();
    w.last_end = end;
    const bool is_replaced = co_await replacement(w, end);
    if (!is_replaced) break;
  }
  if (w.is_done && job_.keep_descendants) w.process->leave_descendants();
  if (--living_ == 0) none_lives_.set();
}

/// Returns whether the rank is started again. If not, it has failed for good, or all are
/// ended.
task<bool> worker_group::replacement(worker& w, const exit_reason& end) {
  const bool may_be_replaced =
      job_.scope == restart_scope::worker && end.kind != exit_kind::not_started;
  const bool has_restart = may_be_replaced && w.tally.take(runtime_.home().now());
  if (has_restart) {
    ++w.incarnation;
    listener_.wants(rank_of(w), w.incarnation);
    co_await kill_descendants(w);
    while (w.granted < w.incarnation && !w.is_denied && !to_stop_.is_set()) {
      w.decided.reset();
      co_await when_any(w.decided.wait(), to_stop_.wait());
    }
    if (w.granted >= w.incarnation && !to_stop_.is_set()) {
      listener_.told(fmt::format("{}; the others go on", text_of_end(rank_of(w), end)));
      co_return true;
    }
  }
  stop(SIGTERM, group_end::failure);
  // What fails because of another node is not told.
  if (why_ == group_end::failure) note_failure(w, end);
  if (may_be_replaced && !has_restart) {
    const std::size_t most = job_.max_restarts_per_rank.value_or(job_.max_restarts);
    listener_.told(fmt::format("rank {} has no restarts left, of {}", rank_of(w), most));
  }
  co_return false;
}

/// `failed` is when the process before it did, if that was here.
task<exit_reason> worker_group::one_life(worker& w, time_point failed) {
  w.verdict.clear();
  process_options how = describe(w);
  w.process = std::make_unique<supervised_process>(runtime_, std::move(how));
  exit_reason end;
  co_await scope::run([&](scope& s) -> task<void> {
    s.spawn(watch_.follow(*w.process, start_of(w, failed)));
    s.spawn(record_start(w));
    end = co_await w.process->ended();
    watch_.ended(rank_of(w));
    for (const auto& each : w.followers) each->note_end();
    const bool was_ended = end.kind == exit_kind::stopped ||
                           (to_stop_.is_set() && signal_ != SIGTERM && !end.is_success());
    output_.records->note_end({rank_of(w), w.local_rank, end.pid}, end, was_ended);
    s.cancel();
  });
  co_return end;
}

/// What a dead worker has started may hold what its successor needs.
task<void> worker_group::kill_descendants(worker& w) {
  try {
    co_await w.process->stop(grace(duration::zero()));
  } catch (const process_error& e) {
    listener_.told(e.what());
  }
}

/// One that has ended already is recorded by its end.
task<void> worker_group::record_start(worker& w) {
  try {
    co_await w.process->started();
  } catch (const process_error&) {
    co_return;
  }
  const pid_t pid = w.process->pid();
  if (pid != 0) output_.records->note_start({rank_of(w), w.local_rank, pid});
}

task<void> worker_group::stop_all_when_told() {
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
task<void> worker_group::put_down(worker& w) {
  supervised_process& process = *w.process;
  try {
    auto asking = [&]() -> task<void> {
      const time_point until = later(runtime_.home().now(), job_.grace);
      if (signal_ != SIGTERM) {
        auto obeying = [&]() -> task<void> {
          // One that is about to run would not get it.
          co_await process.started();
          process.signal(signal_);
          co_await process.ended();
        };
        co_await when_any(obeying(), sleep_for(job_.grace));
      }
      // What it has started hears of the end by SIGTERM, and has the rest of the grace.
      co_await process.stop(grace(until - runtime_.home().now()));
    };
    co_await when_any(asking(), to_kill_.wait());
    co_await process.stop(grace(duration::zero()));
  } catch (const process_error& e) {
    listener_.told(e.what());
  }
}

// ----------------------------------------------------------------------------- One start

process_options worker_group::describe(worker& w) {
  try {
    w.files = output_.folder->files_of(place_.attempt - 1, w.local_rank, w.incarnation);
  } catch (const std::system_error& e) {
    listener_.told(fmt::format("rank {} has no files, and prints to the console: {}",
                               rank_of(w), e.what()));
    w.files = {};
  }
  const std::string& address = place_.store_here;
  worker_place place;
  place.local_rank = w.local_rank;
  place.attempt = place_.attempt - 1;
  place.restarts = place_.restarts;
  place.incarnation = w.incarnation;
  // PyTorch wants an IPv6 address without brackets.
  place.store_host = host_of(address);
  place.store_port = port_of(address).value_or(0);
  place.error_file = w.files.record;
  if (job_.takes_results) place.result_file = make_result(w);
  process_options how(job_.program);
  for (const std::string& each : job_.arguments)
    how.argument(with_local_rank(each, w.local_rank));
  for (const auto& [name, value] : variables_of_worker(job_, place_.nodes, node_, place))
    how.set(name, value);
  for (const auto& [name, value] : watch_.variables()) how.set(name, value);
  // Clients of this library prove the secret to the store itself.
  if (place_.store_here != place_.store) how.set("MANYWORLDS_STORE", place_.store);
  if (job_.guard) how.guarded_by(*job_.guard);
  if (!output_.cpus.empty())
    how.cpus(output_.cpus.at(static_cast<std::size_t>(w.local_rank)));
  set_streams(w, how);
  return how;
}

std::string worker_group::make_result(worker& w) {
  try {
    return w.result.emplace().path();
  } catch (const std::system_error& e) {
    listener_.told(fmt::format("rank {} can give no result: {}", rank_of(w), e.what()));
    return {};
  }
}

void worker_group::set_streams(worker& w, process_options& how) {
  const worker_streams to =
      job_.streams ? job_.streams(rank_of(w), w.local_rank) : worker_streams();
  const bool has_files = !w.files.output.empty();
  w.followers.clear();
  // What goes to a file goes there alone, and the console follows the file.
  // Where files were wanted and cannot be made, it is not lost.
  const bool lacks_files = !has_files && !job_.log_folder.empty();
  const auto kept = [lacks_files](bool to_console) {
    return to_console || lacks_files ? process_output::inherit() : process_output::none();
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

void worker_group::follow(worker& w, const std::string& path, int to) {
  const std::string prefix = job_.prefix ? job_.prefix(rank_of(w), w.local_rank) : "";
  try {
    if (!output_.shown_on) output_.shown_on = std::make_unique<console>();
    w.followers.push_back(std::make_shared<log_follower>(access::core(runtime_).user(),
                                                         *output_.shown_on, path, to,
                                                         prefix, filter_of(to)));
  } catch (const std::system_error& e) {
    listener_.told(fmt::format("rank {} is not shown: {}", rank_of(w), e.what()));
    return;
  }
  output_.showing->spawn(show(w.followers.back()));
}

/// Returns the attempt's filter for what goes to that console; null for none.
std::shared_ptr<const line_filter> worker_group::filter_of(int to) {
  const bool is_output = to == STDOUT_FILENO;
  auto& filter = is_output ? output_filter_ : errors_filter_;
  const auto& texts = is_output ? job_.output_filters : job_.errors_filters;
  if (filter || texts.empty()) return filter;
  const char* const name = is_output ? "filtered_stdout.log" : "filtered_stderr.log";
  try {
    const std::string path = output_.folder->file_of(place_.attempt - 1, name);
    filter = std::make_shared<line_filter>(path, texts);
  } catch (const std::system_error& e) {
    listener_.told(fmt::format("no lines are filtered: {}", e.what()));
  }
  return filter;
}

// ------------------------------------------------------------------------------- Watched

watch_options worker_group::how_to_watch() {
  watch_options how;
  how.hang_limit = job_.hang_timeout;
  how.kernel_limit = job_.kernel_limit;
  how.worlds_up_limit = job_.worlds_up_limit;
  how.inherited = job_.inherited;
  how.told = listener_.told;
  how.unmended = [this](int rank, const std::string& why) { give_up_on(rank, why); };
  how.reported = [this](int rank, const worker_report& what) {
    output_.records->note_report(rank, what);
  };
  how.convicted = [this](const hang_verdict& v) {
    const std::string text = v.text();
    output_.records->status()->note_verdict(text);
    if (worker* const w = find(v.rank)) w->verdict = text;
    listener_.convicted({own_host_name(), text, {v.accusers.begin(), v.accusers.end()}});
  };
  if (place_.nodes.nodes.size() > 1) how.testified = listener_.testified;
  return how;
}

/// `failed` is when the process before it did, if that was here.
watched_start worker_group::start_of(const worker& w, time_point failed) const {
  watched_start start;
  start.rank = rank_of(w);
  start.incarnation = static_cast<int>(w.incarnation);
  if (failed != time_point()) start.failed = failed;
  const worker_streams to =
      job_.streams ? job_.streams(rank_of(w), w.local_rank) : worker_streams();
  if (to.output_to_file && to.errors_to_file && !w.files.output.empty())
    start.output_files = {w.files.output, w.files.errors};
  start.output_before = size_of_files(start.output_files);
  start.folder = w.files.output.substr(0, w.files.output.rfind('/') + 1);
  return start;
}

/// What has ended the process before is the cause, if one has ended.
void worker_group::give_up_on(int rank, const std::string& why) {
  const worker* const w = find(rank);
  if (to_stop_.is_set() || !w) return;
  exit_reason end = w->last_end;
  if (end.pid != 0) {
    listener_.told(fmt::format("rank {}: {}", rank, why));
  } else {
    end.pid = w->process->pid();
  }
  note_failure(*w, end, why);
  stop(SIGTERM, group_end::failure);
}

// ------------------------------------------------------------------------------ Failures

void worker_group::note_failure(const worker& w, const exit_reason& end,
                                const std::string& because) {
  worker_failure f;
  f.rank = rank_of(w);
  f.local_rank = w.local_rank;
  f.host = own_host_name();
  f.reason = end;
  f.time = seconds_of_today();
  std::string why_not;
  // One that was not started has written nothing.
  const bool may_have_record =
      end.kind != exit_kind::not_started && !w.files.record.empty();
  std::optional<error_record> record;
  if (may_have_record) record = read_error_record(w.files.record, why_not);
  if (record) {
    f.error_file = w.files.record;
    f.traceback = record->traceback;
    if (record->time > 0) f.time = record->time;
  } else if (end.signal != 0) {
    f.traceback = fmt::format("Signal {} ({}) received by PID {}", end.signal,
                              received_signal{end.signal}.text(), end.pid);
    // The signal was the agent's own.
    if (!w.verdict.empty())
      f.traceback += ", since it was stuck" + w.verdict.substr(w.verdict.find(": "));
  } else {
    f.traceback =
        end.kind == exit_kind::not_started ? end.text() : std::string(how_to_learn_more);
  }
  if (!because.empty()) f.traceback = because;
  if (!why_not.empty())
    listener_.told(
        fmt::format("rank {}: the error file {} {}", f.rank, w.files.record, why_not));
  // The end that is known may be that of the process before.
  const std::string how =
      because.empty() ? text_of_failed(f) : fmt::format("rank {}: {}", f.rank, because);
  listener_.told(how);
  output_.records->note_ending(how);
  listener_.failed(f);
}

void worker_group::stop(int signal, group_end why) {
  if (to_stop_.is_set()) return;
  signal_ = signal;
  why_ = why;
  output_.records->note_ending("all workers are ended");
  to_stop_.set();
}

worker_group::worker* worker_group::find(std::int32_t rank) noexcept {
  const auto found = std::find_if(workers_.begin(), workers_.end(),
                                  [&](const auto& w) { return rank_of(*w) == rank; });
  return found == workers_.end() ? nullptr : found->get();
}

void worker_group::grant(std::int32_t rank, incarnation_t incarnation) {
  worker* const w = find(rank);
  if (!w || w->granted >= incarnation) return;
  w->granted = incarnation;
  w->decided.set();
}

void worker_group::deny(std::int32_t rank) {
  worker* const w = find(rank);
  if (!w || w->is_denied) return;
  w->is_denied = true;
  w->decided.set();
}

void worker_group::hear(const std::map<std::string, node_report>& all) {
  std::vector<worker_testimony> testimonies;
  for (const auto& [node, said] : all) {
    if (node == place_.node || said.attempt != place_.attempt) continue;
    testimonies.insert(testimonies.end(), said.testimonies.begin(),
                       said.testimonies.end());
    for (std::size_t& heard = verdicts_heard_[node]; heard < said.verdicts.size();
         ++heard) {
      const told_verdict& v = said.verdicts[heard];
      listener_.told(fmt::format("on {}, {}", v.host, v.text));
      to_dump_.insert(v.accusers.begin(), v.accusers.end());
      is_accusing_.set();
    }
  }
  watch_.hear(std::move(testimonies));
}

bool worker_group::is_done() const noexcept {
  return std::all_of(workers_.begin(), workers_.end(),
                     [](const auto& w) { return w->is_done; });
}

std::vector<std::string> worker_group::results() const {
  std::vector<std::string> all;
  for (const auto& each : workers_)
    all.push_back(each->result ? each->result->read() : std::string());
  return all;
}

pid_t worker_group::pid_of(int rank) const noexcept {
  for (const auto& each : workers_) {
    if (rank_of(*each) == rank && each->process) return each->process->pid();
  }
  return 0;
}

}  // namespace manyworlds::inline v0::detail
