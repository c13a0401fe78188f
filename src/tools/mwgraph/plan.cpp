// mwgraph plan: says what would run where, and in which order; nothing starts.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "io/system_environment.hpp"
#include "manyworlds/mpmd/job_placement.hpp"
#include "manyworlds/mpmd/node_resources.hpp"
#include "mpmd/graph_units.hpp"
#include "mwgraph/command.hpp"

namespace mwgraph {

namespace {

namespace mw = manyworlds;

struct plan_arguments {
  std::string file;
  std::vector<std::string> nodes;
};

/// Reads a node that a file declares: it has what stands there, and nothing else.
mw::node_resources node_in(const std::string& path) {
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  if (!file) throw usage_error(path + ": cannot be read");
  mw::node_resources node;
  try {
    node.declare(text);
  } catch (const std::invalid_argument& e) {
    throw usage_error(path + ": " + e.what());
  }
  if (node.name.empty()) throw usage_error(path + ": it has no \"name\"");
  return node;
}

std::vector<mw::node_resources> nodes_of(const std::vector<std::string>& files) {
  std::vector<mw::node_resources> nodes;
  for (const std::string& each : files) nodes.push_back(node_in(each));
  if (!nodes.empty()) return nodes;
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  nodes.push_back(mw::node_resources::of_this_machine(
      mw::detail::own_host_name(),
      visible == nullptr ? std::nullopt : std::optional<std::string_view>(visible)));
  return nodes;
}

/// Returns "0-3,8".
std::string ranges_of(const std::vector<std::uint32_t>& numbers) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    parts.push_back(end - i == 1 ? std::to_string(numbers[i])
                                 : fmt::format("{}-{}", numbers[i], numbers[end - 1]));
    i = end;
  }
  return fmt::format("{}", fmt::join(parts, ","));
}

/// Returns `  decode.0 on a: CPUs 0-1, 2 GiB, GPU-77 (best fit)`.
std::string line_of(const mw::instance_place& place) {
  std::vector<std::string> parts;
  if (place.cpus.empty()) {
    parts.emplace_back("shared CPUs");
  } else {
    parts.push_back(fmt::format("CPU{} {}", place.cpus.size() == 1 ? "" : "s",
                                ranges_of(place.cpus)));
  }
  if (place.memory > 0) parts.push_back(mw::detail::byte_size_text(place.memory));
  parts.insert(parts.end(), place.gpus.begin(), place.gpus.end());
  return fmt::format("  {} on {}: {} ({})\n", place.instance.text(), place.node,
                     fmt::join(parts, ", "), place.why);
}

/// What is reserved on a node.
struct reserved {
  std::size_t instances = 0;
  std::size_t cpus = 0;
  std::uint64_t memory = 0;
  std::set<std::string> gpus;
};

std::string use_of(const mw::node_resources& node, const reserved& used) {
  return fmt::format(
      "  {}: {}, with {} of {}, {} of {}, {} of {}\n", node.name,
      counted(used.instances, "instance"), used.cpus, counted(node.cpu_count(), "CPU"),
      mw::detail::byte_size_text(used.memory), mw::detail::byte_size_text(node.memory),
      used.gpus.size(), counted(node.gpus.size(), "GPU"));
}

int plan(const plan_arguments& a) {
  const mw::job_graph graph = read_graph(a.file);
  const std::vector<mw::node_resources> nodes = nodes_of(a.nodes);
  std::vector<mw::instance_place> places;
  try {
    places = mw::place_instances(graph, nodes, mw::instances_at_start(graph));
  } catch (const mw::placement_error& e) {
    throw usage_error(e.what());
  }
  std::map<std::string, reserved, std::less<>> on;
  std::string text = fmt::format("{}: {} would start in this order\n", graph.name(),
                                 counted(places.size(), "instance"));
  std::size_t next = 0;
  std::size_t number = 0;
  for (const std::string& name : graph.start_order()) {
    const mw::graph_role& role = *graph.find_role(name);
    text += fmt::format("{}. {}", ++number, name);
    if (!role.after_roles.empty())
      text += fmt::format(", after {}", fmt::join(role.after_roles, ", "));
    text += role.counts.start == 0 ? ": no instance\n" : "\n";
    for (; next < places.size() && places[next].instance.role == name; ++next) {
      const mw::instance_place& place = places[next];
      text += line_of(place);
      reserved& used = on[place.node];
      ++used.instances;
      used.cpus += place.cpus.size();
      used.memory += place.memory;
      used.gpus.insert(place.gpus.begin(), place.gpus.end());
    }
  }
  text += "nodes\n";
  for (const mw::node_resources& each : nodes) text += use_of(each, on[each.name]);
  print(text);
  return done;
}

}  // namespace

void add_plan(CLI::App& app, command& chosen) {
  CLI::App& sub = *app.add_subcommand(
      "plan", "say what would run where, in which order and why; nothing starts");
  const auto a = std::make_shared<plan_arguments>();
  add_file(sub, a->file);
  sub.add_option("--node", a->nodes,
                 "a file of JSON that declares a node, with its \"name\"; once for each "
                 "node. Without it the node is this machine");
  sub.callback([a, &chosen] { chosen = [a] { return plan(*a); }; });
}

}  // namespace mwgraph
