#include "launch/job_records.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "io/signals_blocked.hpp"
#include "observe/json_writer.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// What sinks may be behind by.
constexpr std::size_t most_records_waiting = 10000;

std::string argument_of_sink(const std::string& name) {
  const std::size_t colon = name.find(':');
  return colon == std::string::npos ? "" : name.substr(colon + 1);
}

void set_value(job_event& event, std::string_view name, event_value value) {
  for (auto& [each, now] : event.metadata) {
    if (each == name) now = std::move(value);
  }
}

}  // namespace

struct job_records::message final : work {
  message(job_records& in, std::shared_ptr<job_sink> to,
          std::variant<job_event, job_metric> what)
      : work([](work& w) noexcept {
          const std::unique_ptr<message> self(static_cast<message*>(&w));
          self->deliver();
        }),
        records(in),
        sink(std::move(to)),
        record(std::move(what)) {}

  void deliver() noexcept {
    try {
      std::visit([this](const auto& each) { sink->take(each); }, record);
    } catch (const std::exception& e) {
      // A job does not end because its events cannot be kept. The first reason is told at
      // its end.
      if (records.failed_++ == 0) records.why_failed_ = e.what();
    } catch (...) {
      if (records.failed_++ == 0) records.why_failed_ = "unknown error";
    }
    records.waiting_.fetch_sub(1, std::memory_order_relaxed);
  }

  job_records& records;
  const std::shared_ptr<job_sink> sink;
  const std::variant<job_event, job_metric> record;
};

job_records::job_records(const launch_options& job, std::string host, time_point now)
    : job_(job),
      host_(std::move(host)),
      began_(now),
      status_(std::make_shared<job_status>(job.run_id)),
      events_kind_(kind_of_sink(job.event_sink)),
      metrics_kind_(kind_of_sink(job.metric_sink)) {}

job_records::~job_records() = default;

void job_records::begin(const std::string& folder, teller told) {
  told_ = std::move(told);
  const auto make = [&](const std::string& name,
                        const make_job_sink& kind) -> std::shared_ptr<job_sink> {
    if (name == "null") return nullptr;
    try {
      return kind({argument_of_sink(name), folder});
    } catch (const std::exception& e) {
      told_(fmt::format("nothing is recorded by the sink \"{}\": {}", name, e.what()));
      return nullptr;
    }
  };
  events_ = make(job_.event_sink, events_kind_);
  metrics_ = job_.metric_sink == job_.event_sink ? events_
                                                 : make(job_.metric_sink, metrics_kind_);
  if (!events_ && !metrics_) return;
  // Signals are for the program's own threads, which may await them.
  const signals_blocked while_starting;
  thread_ = std::make_unique<worker_thread>("mw-events");
}

void job_records::post(std::unique_ptr<message> what) {
  if (!thread_) return;
  if (waiting_.load(std::memory_order_relaxed) >= most_records_waiting) {
    ++dropped_;
    return;
  }
  waiting_.fetch_add(1, std::memory_order_relaxed);
  thread_->post(*what.release());
}

void job_records::emit(job_event event) {
  if (events_) post(std::make_unique<message>(*this, events_, std::move(event)));
}

void job_records::put_metric(std::string name, double value, std::string group) {
  if (!metrics_) return;
  job_metric metric{std::move(name), value, std::move(group)};
  post(std::make_unique<message>(*this, metrics_, std::move(metric)));
}

void job_records::note_report(int rank, const worker_report& what) {
  const std::string group = "worker";
  if (const auto* const e = std::get_if<reported_event>(&what)) {
    job_event event{e->name, event_source::worker};
    event.metadata = {{"run_id", job_.run_id}, {"global_rank", std::int64_t{rank}}};
    for (const auto& [name, value] : e->fields) event.metadata.emplace_back(name, value);
    emit(std::move(event));
  } else if (const auto* const m = std::get_if<reported_metric>(&what)) {
    put_metric(m->name, m->value, group);
  } else if (const auto* const s = std::get_if<reported_span>(&what)) {
    const std::chrono::duration<double, std::milli> took = s->took;
    put_metric(s->name + ".duration.ms", took.count(), group);
  }
}

// ---------------------------------------------------------------- What torchrun records

/// The fields of torch's, in its order.
job_event job_records::event_of(std::string_view state, event_source source) const {
  json_writer more;
  more.object().field("group_world_size", nodes_);
  more.field("entry_point", std::string_view(job_.program)).end_object();
  job_event event{fmt::format("torchelastic.worker.status.{}", state), source};
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(ran_).count();
  event.metadata = {{"run_id", job_.run_id},
                    {"global_rank", {}},
                    {"group_rank", std::int64_t{self_.rank}},
                    {"worker_id", {}},
                    {"role", job_.role},
                    {"hostname", host_},
                    {"state", std::string(state)},
                    {"total_run_time", std::int64_t{seconds}},
                    {"rdzv_backend", backend_},
                    {"raw_error", {}},
                    {"metadata", more.take()},
                    {"agent_restarts", static_cast<std::int64_t>(restarts_)},
                    {"duration_ms", {}}};
  return event;
}

void job_records::add_worker(job_event& event, const recorded_worker& w,
                             std::optional<int> code) const {
  json_writer more;
  more.object().field("group_world_size", nodes_);
  more.field("entry_point", std::string_view(job_.program));
  // torch writes each of these as a list of one.
  const auto add = [&](const char* name, std::optional<int> value) {
    more.key(name).array();
    if (value) {
      more.value(*value);
    } else {
      more.null();
    }
    more.end_array();
  };
  add("local_rank", w.local_rank);
  add("role_rank", self_.first_role_rank + w.local_rank);
  add("role_world_size", self_.role_size);
  add("exit_code", code);
  add("worker_pid", w.pid);
  more.end_object();
  set_value(event, "global_rank", std::int64_t{w.rank});
  set_value(event, "worker_id", std::to_string(w.pid));
  set_value(event, "metadata", more.take());
}

void job_records::note_round(const round& r, const round_node& self,
                             std::string_view backend, duration took) {
  status_->note_round(r, self);
  self_ = self;
  nodes_ = r.nodes.size();
  backend_ = backend;
  if (!events_) return;
  // Ranks are part of a round; torch has a step for them.
  for (const char* const state : {"RENDEZVOUS", "ASSIGN_WORKER_RANKS"}) {
    job_event event = event_of(state, event_source::agent);
    const std::chrono::duration<double, std::milli> milliseconds = took;
    set_value(event, "duration_ms", milliseconds.count());
    took = duration::zero();
    emit(std::move(event));
  }
}

void job_records::note_start(const recorded_worker& w) {
  status_->note_start(w.rank, w.pid);
  if (!events_) return;
  started_[w.rank] = w.pid;
  job_event event = event_of("START", event_source::worker);
  add_worker(event, w, std::nullopt);
  emit(std::move(event));
}

void job_records::note_end(const recorded_worker& w, const exit_reason& end,
                           bool was_ended) {
  status_->note_end(w.rank, end.text(), end.is_success());
  if (!events_) return;
  // It may have ended before its start was heard of.
  if (w.pid > 0 && started_[w.rank] != w.pid) note_start(w);
  const char* state = "FAILED";
  if (end.is_success()) state = "SUCCEEDED";
  if (was_ended) state = "TERMINATED";
  job_event event = event_of(state, event_source::worker);
  add_worker(event, w, end.signal != 0 ? -end.signal : end.code);
  if (!end.is_success()) set_value(event, "raw_error", end.text());
  emit(std::move(event));
}

void job_records::put_worker_metric(std::string_view name, double value) {
  if (metrics_) put_metric(fmt::format("workers.{}.{}", job_.role, name), value);
}

void job_records::note_attempt() {
  status_->note_attempt(self_);
  put_worker_metric("remaining_restarts", restarts_left());
  put_worker_metric("healthy", 1);
}

void job_records::note_restarts(std::size_t count) {
  if (count == restarts_) return;
  restarts_ = count;
  status_->note_restarts(count);
  put_worker_metric("remaining_restarts", restarts_left());
}

double job_records::restarts_left() const {
  return static_cast<double>(job_.max_restarts - std::min(job_.max_restarts, restarts_));
}

void job_records::note_result(const launch_result& result, time_point now) {
  status_->note_ending("the job has ended");
  ran_ = now - began_;
  note_restarts(result.restarts);
  const bool is_failed = !result.is_success;
  const bool with_retries = result.restarts > 0;
  put_worker_metric(is_failed ? "failed" : "succeeded", 1);
  const double allowed = static_cast<double>(job_.max_restarts) + 1;
  const double flakiness = is_failed ? 100 : 100 - 100 * (restarts_left() + 1) / allowed;
  put_worker_metric("flakiness", static_cast<int>(flakiness));
  put_worker_metric("run_total", 1);
  put_worker_metric("run_success_with_retries", !is_failed && with_retries ? 1 : 0);
  put_worker_metric("run_success_no_retries", !is_failed && !with_retries ? 1 : 0);
  put_worker_metric("run_failed_with_retries", is_failed && with_retries ? 1 : 0);
  put_worker_metric("run_failed_no_retries", is_failed && !with_retries ? 1 : 0);
  if (events_) {
    job_event event = event_of(is_failed ? "FAILED" : "SUCCEEDED", event_source::agent);
    if (!result.failures.empty())
      set_value(event, "raw_error", result.failures.front().reason.text());
    if (result.signal != 0)
      set_value(event, "raw_error", fmt::format("ended by signal {}", result.signal));
    emit(std::move(event));
  }
  // The sinks' thread ends here, with all that was recorded.
  thread_.reset();
  if (failed_ > 0)
    told_(fmt::format("{} events and metrics were lost: {}", failed_, why_failed_));
  if (dropped_ > 0)
    told_(
        fmt::format("{} events and metrics were lost: their sink is too slow", dropped_));
}

}  // namespace manyworlds::inline v0::detail
