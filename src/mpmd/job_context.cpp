#include "mpmd/job_context.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "mpmd/instance_fact.hpp"

namespace manyworlds::inline v0::detail {

using nlohmann::json;

// --- words ----------------------------------------------------------------------------

constexpr std::array<std::string_view, 4> stage_names{"starting", "running", "stopping",
                                                      "stopped"};
constexpr std::array<std::string_view, 4> phase_names{"idle", "waiting", "running",
                                                      "ended"};
constexpr std::array<std::string_view, 5> life_names{"starting", "running", "ready",
                                                     "ending", "ended"};
constexpr std::array<exit_kind, 6> exit_kinds{
    exit_kind::exited,  exit_kind::signaled,    exit_kind::out_of_memory,
    exit_kind::stopped, exit_kind::not_started, exit_kind::reaped_elsewhere};

template <class Enum, std::size_t N>
static std::optional<Enum> find_name(const std::array<std::string_view, N>& names,
                                     std::string_view name) noexcept {
  for (std::size_t i = 0; i < N; ++i)
    if (names[i] == name) return static_cast<Enum>(i);
  return std::nullopt;
}

std::string_view name_of(job_stage stage) noexcept {
  return stage_names[static_cast<std::size_t>(stage)];
}

std::string_view name_of(instance_phase phase) noexcept {
  return phase_names[static_cast<std::size_t>(phase)];
}

std::optional<instance_phase> phase_named(std::string_view name) noexcept {
  return find_name<instance_phase>(phase_names, name);
}

std::string_view name_of(instance_life life) noexcept {
  return life_names[static_cast<std::size_t>(life)];
}

std::optional<instance_life> life_named(std::string_view name) noexcept {
  return find_name<instance_life>(life_names, name);
}

std::optional<exit_kind> exit_kind_named(std::string_view name) noexcept {
  for (const exit_kind kind : exit_kinds)
    if (name == name_of(kind)) return kind;
  return std::nullopt;
}

bool instance_exit::is_lasting() const noexcept {
  // Others are retried: a program that is being written, a file server that is away.
  constexpr std::array<int, 10> lasting{ENOENT,       EACCES, EPERM, ENOEXEC, ENOTDIR,
                                        ENAMETOOLONG, ELOOP,  E2BIG, ELIBBAD, EINVAL};
  return kind == exit_kind::not_started &&
         std::find(lasting.begin(), lasting.end(), code) != lasting.end();
}

// --- rows -----------------------------------------------------------------------------

static std::string text_of(const job_record& job) {
  json row{{"stage", name_of(job.stage)},
           {"exit_code", job.exit_code},
           {"why", job.why},
           {"restarts", job.restarts},
           {"restart_count", job.restart_count},
           {"is_placed", job.is_placed}};
  if (job.number != 0) row["number"] = job.number;
  if (job.is_told) row["is_told"] = true;
  return row.dump(-1, ' ', false, json::error_handler_t::replace);
}

static json json_of(const instance_exit& exit) {
  return {{"kind", name_of(exit.kind)},
          {"code", exit.code},
          {"signal", exit.signal},
          {"text", exit.text}};
}

static std::string text_of(const instance_record& record) {
  json row{{"phase", name_of(record.phase)}, {"incarnation", record.incarnation}};
  if (!record.place.node.empty()) {
    row["node"] = record.place.node;
    row["cpus"] = record.place.cpus;
    row["gpus"] = record.place.gpus;
    row["memory"] = record.place.memory;
    row["why"] = record.place.why;
  }
  if (record.generation != 0) row["generation"] = record.generation;
  if (!record.left_on.empty()) row["left_on"] = record.left_on;
  if (!record.agent.empty()) row["agent"] = record.agent;
  if (!record.address.empty()) row["address"] = record.address;
  if (record.not_before != 0) row["not_before"] = record.not_before;
  if (!record.failures.empty()) row["failures"] = record.failures;
  if (record.exit) row["exit"] = json_of(*record.exit);
  if (!record.why.empty()) row["over"] = record.why;
  return row.dump(-1, ' ', false, json::error_handler_t::replace);
}

static job_record job_from(const json& row) {
  job_record job;
  const auto stage =
      find_name<job_stage>(stage_names, row.at("stage").get<std::string>());
  job.stage = stage.value();
  row.at("exit_code").get_to(job.exit_code);
  row.at("why").get_to(job.why);
  row.at("restarts").get_to(job.restarts);
  row.at("restart_count").get_to(job.restart_count);
  row.at("is_placed").get_to(job.is_placed);
  job.number = row.value("number", std::uint64_t{0});
  job.is_told = row.value("is_told", false);
  return job;
}

static instance_exit exit_from(const json& row) {
  instance_exit exit;
  exit.kind = exit_kind_named(row.at("kind").get<std::string>()).value();
  row.at("code").get_to(exit.code);
  row.at("signal").get_to(exit.signal);
  row.at("text").get_to(exit.text);
  return exit;
}

static instance_record instance_from(const json& row, const instance_id& id) {
  instance_record record;
  record.place.instance = id;
  const std::string phase = row.at("phase").get<std::string>();
  record.phase = phase_named(phase).value();
  row.at("incarnation").get_to(record.incarnation);
  if (row.contains("node")) {
    row.at("node").get_to(record.place.node);
    row.at("cpus").get_to(record.place.cpus);
    row.at("gpus").get_to(record.place.gpus);
    row.at("memory").get_to(record.place.memory);
    row.at("why").get_to(record.place.why);
  }
  record.generation = row.value("generation", std::uint64_t{0});
  record.left_on = row.value("left_on", "");
  if (row.contains("agent")) row.at("agent").get_to(record.agent);
  record.address = row.value("address", "");
  record.not_before = row.value("not_before", recorded_time{0});
  if (row.contains("failures")) row.at("failures").get_to(record.failures);
  if (row.contains("exit")) record.exit = exit_from(row.at("exit"));
  record.why = row.value("over", "");
  return record;
}

// --- the context ----------------------------------------------------------------------

constexpr std::string_view graph_row = "graph";
constexpr std::string_view job_row = "job";
constexpr std::string_view instance_rows = "instance/";
constexpr std::string_view fact_rows = "fact/";

job_context::job_context(job_graph graph) : graph_(std::move(graph)), is_new_(true) {
  number_instances();
}

job_context::job_context(const context_values& rows) {
  std::string reading(graph_row);
  try {
    graph_ = job_graph::from_json(rows.at(reading), reading);
    number_instances();
    reading = job_row;
    job_ = job_from(json::parse(rows.at(reading)));
    for (std::size_t n = 0; n < ids_.size(); ++n) {
      reading = fmt::format("{}{}", instance_rows, ids_[n].text());
      const auto found = rows.find(reading);
      if (found != rows.end())
        records_[n] = instance_from(json::parse(found->second), ids_[n]);
    }
    for (std::size_t n = 0; n < ids_.size(); ++n) {
      const std::string prefix = fmt::format("{}{}/", fact_rows, ids_[n].text());
      for (auto at = rows.lower_bound(prefix);
           at != rows.end() && at->first.starts_with(prefix); ++at)
        keep_fact(n, at->first.substr(prefix.size()), at->second);
    }
    begin_again(0);
  } catch (const std::exception& e) {
    throw context_error(context_trouble::damaged,
                        fmt::format("the row \"{}\" of the job's context cannot be "
                                    "read: {}",
                                    reading, e.what()));
  }
}

void job_context::keep_fact(std::size_t n, std::string key, std::string value) {
  fact_bytes_ += key.size() + value.size();
  facts_[n].emplace(std::move(key), std::move(value));
}

void job_context::number_instances() {
  first_of_role_.push_back(0);
  for (std::size_t role = 0; role < graph_.roles().size(); ++role) {
    const graph_role& r = graph_.roles()[role];
    for (std::uint32_t i = 0; i < r.counts.max; ++i) {
      ids_.push_back({r.name, i});
      role_numbers_.push_back(role);
    }
    first_of_role_.push_back(ids_.size());
  }
  records_.resize(ids_.size());
  facts_.resize(ids_.size());
  for (std::size_t n = 0; n < ids_.size(); ++n) records_[n].place.instance = ids_[n];
}

std::optional<std::size_t> job_context::find(const instance_id& id) const {
  for (std::size_t role = 0; role < graph_.roles().size(); ++role) {
    if (graph_.roles()[role].name != id.role) continue;
    const auto [first, end] = range_of(role);
    if (id.index < end - first) return first + id.index;
  }
  return std::nullopt;
}

instance_record& job_context::change(std::size_t n) {
  changed_.insert(n);
  return records_[n];
}

void job_context::begin_again(recorded_time not_before) {
  for (std::size_t n = 0; n < ids_.size(); ++n) {
    const bool has_begun = records_[n].generation == job_.restart_count;
    if (has_begun || ids_[n].index >= role_of(n).counts.start) continue;
    instance_record& record = change(n);
    record.generation = job_.restart_count;
    record.phase = instance_phase::waiting;
    record.not_before = not_before;
    record.failures.clear();
    if (!record.place.node.empty()) record.left_on = record.place.node;
    record.lose_place();
    if (record.incarnation > 0) record.why = "the job is started again";
  }
}

bool job_context::record_fact(std::size_t n, std::string key, std::string value) {
  if (!objection_to_fact(key, value.size()).empty()) return false;
  auto& own = facts_[n];
  const auto found = own.find(key);
  if (found == own.end() && own.size() == most_facts) return false;
  // What was recorded already is not written again.
  if (found != own.end() && found->second == value) return true;
  std::size_t others = 0;
  for (const auto& [name, fact] : own) others += name == key ? 0 : fact.size();
  if (others + value.size() > most_fact_bytes) return false;
  const std::size_t before = found == own.end() ? 0 : key.size() + found->second.size();
  const std::size_t all = fact_bytes_ - before + key.size() + value.size();
  if (all > most_fact_bytes_of_job) return false;
  fact_bytes_ = all;
  new_facts_.push_back({fmt::format("{}{}/{}", fact_rows, ids_[n].text(), key), value});
  own.insert_or_assign(std::move(key), std::move(value));
  return true;
}

/// A restart of the job is recorded ahead of its instances: their records tell whether
/// they have taken part. So is that the job ends: nothing follows from the record of an
/// instance that will not run again. That all have their places, or have ended, is
/// recorded behind these.
std::vector<context_write> job_context::take_changes() {
  std::vector<context_write> all;
  const auto put_job = [&] { all.push_back({std::string(job_row), text_of(job_)}); };
  const auto put_instance = [&](std::size_t n) {
    all.push_back(
        {fmt::format("{}{}", instance_rows, ids_[n].text()), text_of(records_[n])});
  };
  const bool is_job_last =
      job_.is_placed && !is_new_ && job_.stage != job_stage::stopping;
  if (is_new_) all.push_back({std::string(graph_row), graph_.to_json()});
  if ((is_new_ || is_job_changed_) && !is_job_last) put_job();
  for (const std::size_t n : changed_)
    if (!last_.contains(n)) put_instance(n);
  for (const std::size_t n : last_) put_instance(n);
  if (is_job_changed_ && is_job_last) put_job();
  for (context_write& fact : new_facts_) all.push_back(std::move(fact));
  is_new_ = false;
  is_job_changed_ = false;
  changed_.clear();
  last_.clear();
  new_facts_.clear();
  return all;
}

std::string of_another_graph(const job_context& job, std::string_view where) {
  return fmt::format(
      "{} holds a job \"{}\" of another graph: give this one another name, or let that "
      "one end and forget it",
      where, job.graph().name());
}

}  // namespace manyworlds::inline v0::detail
