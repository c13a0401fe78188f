#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <utility>

#include "manyworlds/mpmd/node_resources.hpp"
#include "mpmd/graph_units.hpp"
#include "mpmd/spoken_text.hpp"
#include "observe/json_writer.hpp"

namespace manyworlds::inline v0 {

namespace {

using json = nlohmann::json;

constexpr std::size_t longest_json = 256 << 10;
constexpr std::size_t longest_text = 128;
constexpr std::size_t most_cpus = 4096;
constexpr std::size_t most_node_gpus = 64;
constexpr std::size_t most_labels = 64;
/// As many NUMA nodes, and CPU numbers, as kernels are built with at most.
constexpr std::uint32_t numa_end = 1024;
constexpr std::uint32_t cpu_end = 1 << 16;

[[noreturn]] void refuse(const std::string& field, const std::string& why) {
  throw std::invalid_argument(fmt::format("resources of a node: {}: {}", field, why));
}

[[noreturn]] void refuse_field(const std::string& where, const std::string& name,
                               const std::vector<std::string_view>& known) {
  refuse(where + detail::in_quotes(name),
         "there is no such field" + detail::did_you_mean(name, known));
}

/// Names and labels stand in lists, and UUIDs in CUDA_VISIBLE_DEVICES, where a comma ends
/// them.
void check_text(const std::string& field, std::string_view text) {
  if (text.empty()) refuse(field, "it is empty");
  if (text.size() > longest_text) {
    refuse(field, fmt::format("it has {} bytes, at most {} are taken", text.size(),
                              longest_text));
  }
  for (const char c : text) {
    if (c <= ' ' || c > '~' || c == ',')
      refuse(field, "it has a character that is a blank, a comma or no printable ASCII");
  }
}

void check_count(const std::string& field, std::size_t count, std::size_t most) {
  if (count > most)
    refuse(field, fmt::format("it has {} items, at most {} are taken", count, most));
}

std::string item(const char* list, std::size_t index) {
  return fmt::format("{}[{}]", list, index);
}

void check_cpus(const node_resources& node) {
  check_count("cpus", node.cpu_count(), most_cpus);
  std::set<std::uint32_t> groups;
  std::set<std::uint32_t> numbers;
  for (const cpu_group& group : node.cpus) {
    const std::string field = item("cpus", group.numa);
    if (group.numa >= numa_end)
      refuse(field, fmt::format("NUMA nodes are counted below {}", numa_end));
    if (!groups.insert(group.numa).second) refuse(field, "the NUMA node stands twice");
    for (const std::uint32_t cpu : group.cpus) {
      if (cpu >= cpu_end)
        refuse(field, fmt::format("CPU {}: they are counted below {}", cpu, cpu_end));
      if (!numbers.insert(cpu).second)
        refuse(field, fmt::format("CPU {} stands twice", cpu));
    }
  }
}

void check_gpus(const node_resources& node) {
  check_count("gpus", node.gpus.size(), most_node_gpus);
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < node.gpus.size(); ++i) {
    const gpu_resource& gpu = node.gpus[i];
    const std::string field = item("gpus", i);
    check_text(field + ".uuid", gpu.uuid);
    if (!names.insert(gpu.uuid).second)
      refuse(field + ".uuid", fmt::format("{} stands twice", gpu.uuid));
    if (gpu.numa >= numa_end)
      refuse(field + ".numa", fmt::format("NUMA nodes are counted below {}", numa_end));
  }
}

void check_labels(const node_resources& node) {
  check_count("labels", node.labels.size(), most_labels);
  std::set<std::string_view> labels;
  for (std::size_t i = 0; i < node.labels.size(); ++i) {
    check_text(item("labels", i), node.labels[i]);
    if (!labels.insert(node.labels[i]).second)
      refuse(item("labels", i), fmt::format("{} stands twice", node.labels[i]));
  }
}

/// Checks all but the name.
void check(const node_resources& node) {
  check_cpus(node);
  check_gpus(node);
  check_labels(node);
  if (!node.address.empty()) check_text("address", node.address);
}

const json& list_in(const std::string& field, const json& in, std::size_t most) {
  if (!in.is_array()) refuse(field, "it is no list");
  check_count(field, in.size(), most);
  return in;
}

std::string text_in(const std::string& field, const json& in) {
  if (!in.is_string()) refuse(field, "it is no text");
  return in.get<std::string>();
}

std::uint32_t number_in(const std::string& field, const json& in, std::uint32_t end) {
  if (!in.is_number_unsigned()) refuse(field, "it is no whole number from 0 on");
  const auto number = in.get<std::uint64_t>();
  if (number >= end) refuse(field, fmt::format("{} is not below {}", number, end));
  return static_cast<std::uint32_t>(number);
}

std::uint64_t bytes_in(const std::string& field, const json& in) {
  if (in.is_number_unsigned()) return in.get<std::uint64_t>();
  if (in.is_string()) {
    if (const auto bytes = detail::parse_size(in.get_ref<const std::string&>()))
      return *bytes;
  }
  refuse(field, "it is no number of bytes, and no text as \"64GiB\"");
}

std::vector<cpu_group> cpus_in(const json& in) {
  std::vector<cpu_group> groups;
  std::uint32_t numa = 0;
  for (const json& list : list_in("cpus", in, numa_end)) {
    const std::string field = item("cpus", numa);
    cpu_group group{numa++, {}};
    for (const json& cpu : list_in(field, list, most_cpus))
      group.cpus.push_back(number_in(field, cpu, cpu_end));
    // A node of memory alone.
    if (!group.cpus.empty()) groups.push_back(std::move(group));
  }
  return groups;
}

enum class others { refused, passed_over };

gpu_resource gpu_in(const std::string& field, const json& in, others unknown) {
  if (!in.is_object()) refuse(field, "it is no object");
  gpu_resource gpu;
  for (const auto& [name, value] : in.items()) {
    const std::string inner = fmt::format("{}.{}", field, name);
    if (name == "uuid") {
      gpu.uuid = text_in(inner, value);
    } else if (name == "memory") {
      gpu.memory = bytes_in(inner, value);
    } else if (name == "numa") {
      gpu.numa = number_in(inner, value, numa_end);
    } else if (unknown == others::refused) {
      refuse_field(field + ": ", name, {"uuid", "memory", "numa"});
    }
  }
  return gpu;
}

void read_field(node_resources& node, const std::string& name, const json& in,
                others unknown) {
  if (name == "name") {
    node.name = text_in("name", in);
    check_text("name", node.name);
  } else if (name == "cpus") {
    node.cpus = cpus_in(in);
  } else if (name == "memory") {
    node.memory = bytes_in("memory", in);
  } else if (name == "gpus") {
    node.gpus.clear();
    for (const json& gpu : list_in("gpus", in, most_node_gpus))
      node.gpus.push_back(gpu_in(item("gpus", node.gpus.size()), gpu, unknown));
  } else if (name == "labels") {
    node.labels.clear();
    for (const json& label : list_in("labels", in, most_labels))
      node.labels.push_back(text_in(item("labels", node.labels.size()), label));
  } else if (name == "address") {
    node.address = text_in("address", in);
    check_text("address", node.address);
  } else if (unknown == others::refused) {
    refuse_field("", name, {"name", "cpus", "memory", "gpus", "labels", "address"});
  }
}

/// Sets the fields that the text has.
void read_into(node_resources& node, std::string_view text, others unknown) {
  if (text.size() > longest_json) {
    refuse("the text", fmt::format("it has {} bytes, at most {} are taken", text.size(),
                                   longest_json));
  }
  const json in = json::parse(text, nullptr, false);
  if (!in.is_object()) refuse("the text", "it is no JSON object");
  for (const auto& [name, value] : in.items()) read_field(node, name, value, unknown);
}

}  // namespace

void node_resources::declare(std::string_view json_text) {
  node_resources declared = *this;
  read_into(declared, json_text, others::refused);
  check(declared);
  *this = std::move(declared);
}

node_resources node_resources::from_json(std::string_view json_text) {
  node_resources node;
  read_into(node, json_text, others::passed_over);
  check_text("name", node.name);
  check(node);
  return node;
}

std::string node_resources::to_json() const {
  check_text("name", name);
  check(*this);
  detail::json_writer out;
  out.object().field("name", name).key("cpus").array();
  std::uint32_t end = 0;
  for (const cpu_group& group : cpus) end = std::max(end, group.numa + 1);
  for (std::uint32_t numa = 0; numa < end; ++numa) {
    out.array();
    for (const cpu_group& group : cpus) {
      if (group.numa != numa) continue;
      for (const std::uint32_t cpu : group.cpus) out.value(cpu);
    }
    out.end_array();
  }
  out.end_array().field("memory", memory).key("gpus").array();
  for (const gpu_resource& gpu : gpus) {
    out.object()
        .field("uuid", gpu.uuid)
        .field("memory", gpu.memory)
        .field("numa", gpu.numa)
        .end_object();
  }
  out.end_array().key("labels").array();
  for (const std::string& label : labels) out.value(label);
  out.end_array();
  if (!address.empty()) out.field("address", address);
  out.end_object();
  return out.take();
}

}  // namespace manyworlds::inline v0
