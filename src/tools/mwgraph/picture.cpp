// mwgraph picture: draws a description.
#include "mpmd/graph_picture.hpp"

#include <memory>

#include "mwgraph/command.hpp"

namespace mwgraph {

namespace {

struct picture_arguments {
  std::string file;
  std::string format = "dot";
};

int draw(const picture_arguments& a) {
  const manyworlds::job_graph graph = read_graph(a.file);
  print(a.format == "mermaid" ? manyworlds::detail::mermaid_picture(graph)
                              : manyworlds::detail::dot_picture(graph));
  return done;
}

}  // namespace

void add_picture(CLI::App& app, command& chosen) {
  CLI::App& sub = *app.add_subcommand("picture", "draw roles and edges");
  const auto a = std::make_shared<picture_arguments>();
  add_file(sub, a->file);
  sub.add_option("--format", a->format, "for Graphviz, or for Mermaid")
      ->check(CLI::IsMember({"dot", "mermaid"}))
      ->capture_default_str();
  sub.callback([a, &chosen] { chosen = [a] { return draw(*a); }; });
}

}  // namespace mwgraph
