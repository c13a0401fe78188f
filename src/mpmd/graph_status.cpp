#include "mpmd/graph_status.hpp"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

namespace manyworlds::inline v0::detail {

using nlohmann::json;

constexpr std::size_t most_events = 256;
/// Less than etcd takes: 1.5 MiB for a request.
constexpr std::size_t longest_status = std::size_t{1024} * 1024;

void graph_status::go_on_from(const std::string& told, const job_context& job) try {
  const json all = json::parse(told);
  // One of its name may have been there before.
  if (all.at("number").get<std::uint64_t>() != job.job().number) return;
  graph_status before;
  before.dropped_ = all.at("events_before").get<std::size_t>();
  for (const json& each : all.at("events"))
    before.note(each.at("time").get<recorded_time>(), each.at("what").get<std::string>());
  before.stage_ = all.at("stage").get<std::string>();
  before.restarts_ = all.at("job_restarts").get<std::uint64_t>();
  // One that is too long leaves all of them out.
  const bool has_instances = !all.contains("left_out");
  if (has_instances) before.seen_.resize(job.size());
  std::map<std::string, std::size_t> numbers;
  for (std::size_t n = 0; n < job.size(); ++n) numbers[job.id(n).text()] = n;
  for (const json& each : all.at("instances")) {
    const auto number = numbers.find(each.at("instance").get<std::string>());
    const auto phase = phase_named(each.at("phase").get<std::string>());
    if (number == numbers.end() || !phase || !has_instances) continue;
    before.seen_[number->second] = {
        each.at("incarnation").get<std::uint64_t>(), *phase,
        each.value("life", "") == name_of(instance_life::ready)};
  }
  *this = std::move(before);
} catch (const json::exception&) {
  // A later version may tell it in another way.
}

void graph_status::note(recorded_time when, std::string what) {
  events_.emplace_back(when, std::move(what));
  if (events_.size() <= most_events) return;
  events_.pop_front();
  ++dropped_;
}

void graph_status::note_changes(const job_manager& manager, recorded_time now) {
  const job_context& job = manager.context();
  if (seen_.size() != job.size()) {
    // What a master takes over is no news.
    seen_.resize(job.size());
    for (std::size_t n = 0; n < job.size(); ++n)
      seen_[n] = {job.at(n).incarnation, job.at(n).phase, job.at(n).incarnation > 0};
  }
  for (std::size_t n = 0; n < job.size(); ++n) {
    const instance_record& record = job.at(n);
    const instance_report* const report = manager.nodes().current(n, record);
    const bool is_ready = report != nullptr && report->life == instance_life::ready;
    seen& last = seen_[n];
    const std::string name = job.id(n).text();
    if (record.incarnation != last.incarnation) {
      note(now, fmt::format("{}: incarnation {} starts on {}", name, record.incarnation,
                            record.place.node));
    }
    if (record.phase != last.phase && record.phase == instance_phase::waiting &&
        last.incarnation > 0) {
      note(now, fmt::format("{}: incarnation {} is over: {}", name, last.incarnation,
                            record.why));
    }
    if (record.phase != last.phase && record.phase == instance_phase::ended) {
      const std::string exit = record.exit ? record.exit->text : std::string();
      const std::string& why = record.why.empty() ? exit : record.why;
      note(now,
           fmt::format("{}: ended for good{}{}", name, why.empty() ? "" : ": ", why));
    }
    if (is_ready && !last.is_ready)
      note(now, fmt::format("{}: incarnation {} is ready", name, record.incarnation));
    // An agent that has yet to come says nothing of what it has.
    const bool is_unknown = report == nullptr && record.incarnation == last.incarnation;
    last = {record.incarnation, record.phase, is_unknown ? last.is_ready : is_ready};
  }
  // A job that starts again while it starts has no other stage.
  if (stage_ != name_of(job.job().stage) || restarts_ != job.job().restart_count) {
    stage_ = name_of(job.job().stage);
    restarts_ = job.job().restart_count;
    const std::string& why = job.job().why;
    note(now, fmt::format("the job is {}{}{}", stage_, why.empty() ? "" : ": ", why));
  }
}

static json json_of(const node_view& view, const std::string& name) {
  return {{"name", name},
          {"is_there", view.is_there()},
          {"has", view.is_there() ? view.resources.text() : std::string()}};
}

static json json_of(const job_manager& manager, std::size_t n) {
  const job_context& job = manager.context();
  const instance_record& record = job.at(n);
  const instance_report* const report = manager.nodes().current(n, record);
  json all{{"instance", job.id(n).text()},
           {"phase", name_of(record.phase)},
           {"incarnation", record.incarnation},
           {"node", record.place.node},
           {"failures", manager.counted_failures(n)}};
  if (report != nullptr) {
    all["life"] = name_of(report->life);
    all["pid"] = report->pid;
    all["start_time"] = report->start_time;
    all["steps"] = report->progress;
  }
  if (!record.place.gpus.empty()) all["gpus"] = record.place.gpus;
  if (!record.place.cpus.empty()) all["cpus"] = record.place.cpus;
  if (!record.place.why.empty()) all["placed"] = record.place.why;
  if (!record.why.empty()) all["over"] = record.why;
  if (record.exit) {
    all["last_end"] = record.exit->text;
    all["last_code"] = record.exit->shell_code();
  }
  return all;
}

std::string graph_status::text(const job_manager& manager, std::uint64_t term) const {
  const job_context& job = manager.context();
  json all{{"job", job.graph().name()},
           {"number", job.job().number},
           {"term", term},
           {"stage", name_of(job.job().stage)},
           {"exit_code", job.job().exit_code},
           {"why", job.job().why},
           {"waits_for", manager.waits_for()},
           {"job_restarts", job.job().restart_count}};
  json& nodes = all["nodes"] = json::array();
  for (const auto& [name, view] : manager.nodes().all())
    nodes.push_back(json_of(view, name));
  json& instances = all["instances"] = json::array();
  const std::vector<std::string> waits = manager.what_waits_for();
  for (std::size_t n = 0; n < job.size(); ++n) {
    if (job.at(n).phase == instance_phase::idle) continue;
    instances.push_back(json_of(manager, n));
    if (!waits[n].empty()) instances.back()["waits_for"] = waits[n];
  }
  json& edges = all["edges"] = json::array();
  for (const graph_edge& edge : job.graph().edges()) {
    edges.push_back({{"name", edge.name},
                     {"from", edge.from},
                     {"to", edge.to},
                     {"kind", name_of(edge.kind)}});
  }
  all["events_before"] = dropped_;
  json& events = all["events"] = json::array();
  for (const auto& [when, what] : events_)
    events.push_back({{"time", when}, {"what", what}});
  const auto text_of = [](const json& what) {
    return what.dump(-1, ' ', false, json::error_handler_t::replace);
  };
  std::string told = text_of(all);
  if (told.size() <= longest_status) return told;
  // A store takes no more, and that the job is over must be told in any case.
  all["left_out"] = fmt::format("{} instances and {} events: a status has at most {} KiB",
                                instances.size(), events.size(), longest_status / 1024);
  instances = json::array();
  events = json::array();
  all["events_before"] = dropped_ + events_.size();
  return text_of(all);
}

}  // namespace manyworlds::inline v0::detail
