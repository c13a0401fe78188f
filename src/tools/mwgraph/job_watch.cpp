#include "mwgraph/job_watch.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace mwgraph {

namespace mw = manyworlds;
using nlohmann::json;

mw::task<std::optional<json>> status_of(const status_source& source) {
  const std::optional<std::string> told = co_await source();
  if (!told) co_return std::nullopt;
  json status = json::parse(*told, nullptr, false);
  if (!status.is_object()) co_return std::nullopt;
  co_return status;
}

const json& list_in(const json& status, const char* name) {
  static const json none = json::array();
  const auto at = status.find(name);
  return at != status.end() && at->is_array() ? *at : none;
}

std::vector<std::string> event_reader::news(const json& status) {
  std::vector<std::string> all;
  const json& events = list_in(status, "events");
  const std::size_t first = status.value("events_before", std::size_t{0});
  // A master that could not have what was told before it begins anew.
  if (first + events.size() < seen_) seen_ = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (first + i < seen_) continue;
    const std::int64_t ms = events[i].value("time", std::int64_t{0});
    all.push_back(fmt::format("{:%H:%M:%S}.{:03} {}", fmt::localtime(ms / 1000),
                              ms % 1000, events[i].value("what", "")));
  }
  seen_ = std::max(seen_, first + events.size());
  return all;
}

bool is_over(const json& status) { return status.value("stage", "") == "stopped"; }

std::string table_of(const json& status) {
  std::string text =
      fmt::format("{}: {}", status.value("job", "?"), status.value("stage", "?"));
  const std::string why = status.value("why", "");
  if (!why.empty()) text += fmt::format(" ({})", why);
  text += fmt::format(", term {}", status.value("term", std::uint64_t{0}));
  const std::uint64_t restarts = status.value("job_restarts", std::uint64_t{0});
  if (restarts > 0) text += fmt::format(", started again {} times", restarts);
  const std::string waits = status.value("waits_for", "");
  if (!waits.empty()) text += fmt::format("\nwaits: {}", waits);
  const std::string left_out = status.value("left_out", "");
  if (!left_out.empty()) text += fmt::format("\nleft out: {}", left_out);
  text += "\n\n";
  for (const json& node : list_in(status, "nodes")) {
    text += fmt::format("node {}\n", node.value("is_there", false)
                                         ? node.value("has", "")
                                         : node.value("name", "") + ": no agent");
  }
  text += fmt::format("\n{:<20} {:<9} {:>5} {:<12} {:>8} {:>8}  {}\n", "INSTANCE",
                      "STATE", "INC", "NODE", "PID", "FAILURES", "LAST END");
  for (const json& each : list_in(status, "instances")) {
    const std::string phase = each.value("phase", "?");
    text += fmt::format(
        "{:<20} {:<9} {:>5} {:<12} {:>8} {:>8}  {}\n", each.value("instance", "?"),
        phase == "running" ? each.value("life", "ordered") : phase,
        each.value("incarnation", std::uint64_t{0}), each.value("node", "-"),
        each.contains("pid") ? std::to_string(each.value("pid", 0)) : "-",
        each.value("failures", 0), each.value("last_end", ""));
  }
  return text;
}

}  // namespace mwgraph
