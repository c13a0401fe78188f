// mwgraph picture: draws a description, or a job with what its instances do now.
#include "mpmd/graph_picture.hpp"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "mwgraph/command.hpp"
#include "mwgraph/job_line.hpp"
#include "mwgraph/job_watch.hpp"

namespace mwgraph {

namespace mw = manyworlds;
using mw::detail::instance_states;

namespace {

struct picture_arguments {
  std::string file;
  std::string format = "dot";
  bool is_live = false;
  job_line job;
};

int draw(const mw::job_graph& graph, const std::string& format,
         const instance_states& states) {
  print(format == "mermaid" ? mw::detail::mermaid_picture(graph, states)
                            : mw::detail::dot_picture(graph, states));
  return done;
}

/// What a process does; without one, what its record waits for.
instance_states states_in(const nlohmann::json& status) {
  instance_states states;
  for (const nlohmann::json& each : list_in(status, "instances")) {
    const std::string phase = each.value("phase", "");
    std::string& state = states[each.value("instance", "")];
    state = fmt::format("{} on {}", each.value("life", phase), each.value("node", "?"));
    const auto incarnation = each.value("incarnation", std::uint64_t{0});
    if (incarnation > 1) state += fmt::format(", incarnation {}", incarnation);
  }
  return states;
}

int draw_live(const mw::job_graph& graph, const picture_arguments& a) {
  job_line job = a.job;
  job.job = graph.name();
  instance_states states;
  const auto look = [&states](status_source source) -> mw::task<int> {
    const auto status = co_await status_of(source);
    if (status) states = states_in(*status);
    co_return done;
  };
  ask_status(job, look);
  return draw(graph, a.format, states);
}

}  // namespace

void add_picture(CLI::App& app, command& chosen) {
  CLI::App& sub = *app.add_subcommand("picture", "draw roles and edges");
  const auto a = std::make_shared<picture_arguments>();
  add_file(sub, a->file);
  sub.add_option("--format", a->format, "for Graphviz, or for Mermaid")
      ->check(CLI::IsMember({"dot", "mermaid"}))
      ->capture_default_str();
  sub.add_flag("--live", a->is_live,
               "with what the instances of the job of that name do now");
  add_place_of_job(sub, a->job);
  sub.callback([a, &chosen] {
    chosen = [a] {
      const mw::job_graph graph = read_graph(a->file);
      return a->is_live ? draw_live(graph, *a) : draw(graph, a->format, {});
    };
  });
}

}  // namespace mwgraph
