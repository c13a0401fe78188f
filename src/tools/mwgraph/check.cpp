// mwgraph check: says all that is wrong with a description, and starts nothing.
#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <string>

#include "mwgraph/command.hpp"

namespace mwgraph {

namespace {

int check(const std::string& file) {
  const manyworlds::job_graph graph = read_graph(file);
  std::uint64_t instances = 0;
  for (const manyworlds::graph_role& each : graph.roles()) instances += each.counts.start;
  print(fmt::format("{}: {}, {}, {}\n", file, counted(graph.roles().size(), "role"),
                    counted(instances, "instance"),
                    counted(graph.edges().size(), "edge")));
  return done;
}

}  // namespace

void add_check(CLI::App& app, command& chosen) {
  CLI::App& sub =
      *app.add_subcommand("check", "say all that is wrong with a description");
  const auto file = std::make_shared<std::string>();
  add_file(sub, *file);
  sub.callback([file, &chosen] { chosen = [file] { return check(*file); }; });
}

}  // namespace mwgraph
