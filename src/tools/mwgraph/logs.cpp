// mwgraph logs, why: what an instance has printed, and why it stands as it does.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mwgraph/command.hpp"
#include "mwgraph/job_line.hpp"
#include "mwgraph/job_watch.hpp"

namespace mwgraph {

namespace mw = manyworlds;
using nlohmann::json;

namespace {

struct instance_line {
  job_line job;
  std::string instance;
  std::string logs;
};

// --- logs -----------------------------------------------------------------------------

int print_logs(const instance_line& line) {
  const std::string all =
      line.logs.empty()
          ? fmt::format("{}/{}/logs", mw::detail::folder_of_jobs(line.job.folder),
                        line.job.job)
          : line.logs;
  const std::string folder = fmt::format("{}/{}", all, line.instance);
  std::vector<std::filesystem::path> files;
  if (std::filesystem::is_directory(folder))
    for (const auto& each : std::filesystem::directory_iterator(folder))
      if (each.path().extension() == ".log") files.push_back(each.path());
  if (files.empty())
    throw usage_error(fmt::format("there is no log of \"{}\" in {}", line.instance, all));
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) {
    const std::string x = a.stem();
    const std::string y = b.stem();
    return x.size() != y.size() ? x.size() < y.size() : x < y;
  });
  for (const auto& each : files) {
    std::ifstream file(each);
    print(fmt::format("--- incarnation {} ---\n", each.stem().string()));
    print({std::istreambuf_iterator<char>(file), {}});
  }
  return done;
}

// --- why ------------------------------------------------------------------------------

const json* find_instance(const json& status, const std::string& name) {
  for (const json& each : list_in(status, "instances"))
    if (each.value("instance", "") == name) return &each;
  return nullptr;
}

std::string state_of(const json& instance) {
  const std::string phase = instance.value("phase", "?");
  return phase == "running" ? instance.value("life", "ordered") : phase;
}

/// What each instance of a role does now, on one line.
std::string states_of_role(const json& status, const std::string& role) {
  std::string text;
  for (const json& each : list_in(status, "instances")) {
    const std::string name = each.value("instance", "");
    if (name.substr(0, name.rfind('.')) != role) continue;
    text += fmt::format("{}{} is {}", text.empty() ? "" : ", ", name, state_of(each));
  }
  return text.empty() ? "none is wanted" : text;
}

std::string neighbours_of(const json& status, const std::string& role) {
  std::string text;
  for (const json& edge : list_in(status, "edges")) {
    const std::string from = edge.value("from", "");
    const std::string to = edge.value("to", "");
    if (from != role && to != role) continue;
    const std::string other = from == role ? to : from;
    text +=
        fmt::format("  {} {} (edge {}): {}\n", from == role ? "downstream" : "upstream",
                    other, edge.value("name", ""), states_of_role(status, other));
  }
  return text;
}

mw::task<int> explain(status_source source, const instance_line& line) {
  const auto status = co_await status_of(source);
  const json* const found = status ? find_instance(*status, line.instance) : nullptr;
  if (found == nullptr) {
    fmt::print(stderr, "mwgraph: the job has no instance \"{}\"\n", line.instance);
    co_return is_wrong;
  }
  std::string text =
      fmt::format("{}: {}, incarnation {}", line.instance, state_of(*found),
                  found->value("incarnation", std::uint64_t{0}));
  if (!found->value("node", "").empty())
    text += fmt::format(" on {}", found->value("node", ""));
  if (found->contains("placed")) text += fmt::format(" ({})", found->value("placed", ""));
  text += "\n";
  if (found->contains("last_end"))
    text += fmt::format("  last end: {}\n", found->value("last_end", ""));
  const std::string over = found->value("over", "");
  if (!over.empty() && over != found->value("last_end", ""))
    text += fmt::format("  the last one is over: {}\n", over);
  text += fmt::format("  failures within its window: {}\n", found->value("failures", 0));
  if (!found->value("waits_for", "").empty())
    text += fmt::format("  waits for: {}\n", found->value("waits_for", ""));
  if (!status->value("waits_for", "").empty())
    text += fmt::format("  the job waits: {}\n", status->value("waits_for", ""));
  text += neighbours_of(*status, line.instance.substr(0, line.instance.rfind('.')));
  print(text);
  co_return done;
}

}  // namespace

void add_logs(CLI::App& app, command& chosen) {
  CLI::App& sub =
      *app.add_subcommand("logs", "print what an instance has printed on this machine");
  const auto line = std::make_shared<instance_line>();
  // Files are read, and no master is asked: only jobs of this machine have a place here.
  sub.add_option("JOB", line->job.job, "the job's name")->required();
  sub.add_option("--folder", line->job.folder,
                 "where jobs of this machine leave what finds them");
  sub.add_option("INSTANCE", line->instance, "as decode.1")->required();
  sub.add_option("--log-dir", line->logs,
                 "where the job, or an agent, was told to keep them");
  sub.callback([line, &chosen] { chosen = [line] { return print_logs(*line); }; });
}

void add_why(CLI::App& app, command& chosen) {
  CLI::App& sub = *app.add_subcommand(
      "why", "say why an instance stands as it does, and what its neighbours do");
  const auto line = std::make_shared<instance_line>();
  add_job_line(sub, line->job);
  sub.add_option("INSTANCE", line->instance, "as decode.1")->required();
  sub.callback([line, &chosen] {
    chosen = [line] {
      return ask_status(line->job, [line](status_source source) {
        return explain(std::move(source), *line);
      });
    };
  });
}

}  // namespace mwgraph
