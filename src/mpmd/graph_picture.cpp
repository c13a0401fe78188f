#include "mpmd/graph_picture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace manyworlds::inline v0::detail {

namespace {

using text_lines = std::vector<std::string>;

/// Returns "decode x 2", "decode x 2 (1 to 4)".
std::string title_of(const graph_role& role) {
  const auto [min, start, max] = role.counts;
  std::string title = fmt::format("{} x {}", role.name, start);
  if (min != max) title += fmt::format(" ({} to {})", min, max);
  if (role.kind == role_kind::spmd) title += ", spmd";
  if (role.is_driver) title += ", driver";
  return title;
}

/// Returns the instances of a role that have a state, by index.
text_lines states_of(const graph_role& role, const instance_states& states) {
  std::vector<std::pair<std::uint32_t, std::string>> found;
  const std::string prefix = role.name + '.';
  for (auto at = states.lower_bound(prefix); at != states.end(); ++at) {
    const std::string_view name = at->first;
    if (!name.starts_with(prefix)) break;
    std::uint32_t index = 0;
    std::from_chars(name.data() + prefix.size(), name.data() + name.size(), index);
    found.emplace_back(index, fmt::format("{} {}", name, at->second));
  }
  std::sort(found.begin(), found.end());
  text_lines lines;
  for (auto& [index, line] : found) lines.push_back(std::move(line));
  return lines;
}

text_lines label_of(const graph_role& role, const instance_states& states) {
  text_lines lines{title_of(role)};
  for (std::string& each : states_of(role, states)) lines.push_back(std::move(each));
  return lines;
}

/// Returns "kv: bulk, pairs".
std::string label_of(const graph_edge& edge) {
  std::string label = fmt::format("{}: {}", edge.name, name_of(edge.kind));
  if (edge.kind == edge_kind::bulk) label += fmt::format(", {}", name_of(edge.shape));
  return label;
}

/// Replaces characters by what a language has in their place.
std::string replaced(std::string_view text,
                     const std::map<char, std::string_view>& instead) {
  std::string made;
  for (const char c : text) {
    const auto found = instead.find(c);
    if (found == instead.end()) {
      made += c;
    } else {
      made += found->second;
    }
  }
  return made;
}

std::string joined(const text_lines& lines, std::string_view between,
                   const std::map<char, std::string_view>& instead) {
  std::string made;
  for (const std::string& each : lines) {
    if (!made.empty()) made += between;
    made += replaced(each, instead);
  }
  return made;
}

const std::map<char, std::string_view>& dot_escapes() {
  static const std::map<char, std::string_view> escapes{
      {'"', "\\\""}, {'\\', "\\\\"}, {'\n', "\\n"}};
  return escapes;
}

const std::map<char, std::string_view>& mermaid_escapes() {
  static const std::map<char, std::string_view> escapes{
      {'"', "#quot;"}, {'#', "#35;"}, {'<', "#lt;"}, {'>', "#gt;"}, {'\n', "<br/>"}};
  return escapes;
}

/// Returns what stands for a role in Mermaid's lines, of which some names are words.
std::string id_of(const job_graph& graph, std::string_view role) {
  const auto& roles = graph.roles();
  const auto found = std::ranges::find(roles, role, &graph_role::name);
  return fmt::format("r{}", found - roles.begin());
}

}  // namespace

std::string dot_picture(const job_graph& graph, const instance_states& states) {
  const auto quote = [](std::string_view text) {
    return '"' + replaced(text, dot_escapes()) + '"';
  };
  std::string made =
      fmt::format("digraph {} {{\n  node [shape=box];\n", quote(graph.name()));
  for (const graph_role& each : graph.roles()) {
    made += fmt::format("  {} [label=\"{}\"{}];\n", quote(each.name),
                        joined(label_of(each, states), "\\n", dot_escapes()),
                        each.is_driver ? ", peripheries=2" : "");
  }
  for (const graph_edge& each : graph.edges()) {
    made +=
        fmt::format("  {} -> {} [label={}{}];\n", quote(each.from), quote(each.to),
                    quote(label_of(each)),
                    each.on_loss == edge_loss::restart_together ? ", penwidth=3" : "");
  }
  for (const graph_role& each : graph.roles()) {
    for (const std::string& first : each.after_roles) {
      made += fmt::format("  {} -> {} [label=\"before\", style=dotted];\n", quote(first),
                          quote(each.name));
    }
  }
  return made + "}\n";
}

std::string mermaid_picture(const job_graph& graph, const instance_states& states) {
  std::string made = "flowchart LR\n";
  for (const graph_role& each : graph.roles()) {
    made += fmt::format("  {}[\"{}\"]\n", id_of(graph, each.name),
                        joined(label_of(each, states), "<br/>", mermaid_escapes()));
  }
  for (const graph_edge& each : graph.edges()) {
    made +=
        fmt::format("  {} {}|\"{}\"| {}\n", id_of(graph, each.from),
                    each.on_loss == edge_loss::restart_together ? "==>" : "-->",
                    replaced(label_of(each), mermaid_escapes()), id_of(graph, each.to));
  }
  for (const graph_role& each : graph.roles()) {
    for (const std::string& first : each.after_roles) {
      made += fmt::format("  {} -.->|before| {}\n", id_of(graph, first),
                          id_of(graph, each.name));
    }
  }
  return made;
}

}  // namespace manyworlds::inline v0::detail
