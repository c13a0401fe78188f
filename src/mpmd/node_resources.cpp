#include "manyworlds/mpmd/node_resources.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <utility>

#include "launch/cpu_topology.hpp"
#include "mpmd/graph_units.hpp"
#include "mpmd/machine_memory.hpp"
#include "mpmd/machine_resources.hpp"
#include "mpmd/nvml.hpp"
#include "mpmd/visible_gpus.hpp"

namespace manyworlds::inline v0 {

namespace {

std::vector<cpu_group> cpus_by_numa(const detail::machine_view& machine) {
  // Without GPUs, which NVML lists.
  const detail::cpu_topology found =
      detail::read_cpu_topology(machine.root, machine.allowed, std::string());
  std::map<std::uint32_t, cpu_group> groups;
  for (const detail::logical_cpu& each : found.cpus) {
    cpu_group& group = groups[each.node];
    group.numa = each.node;
    group.cpus.push_back(each.number);
  }
  std::vector<cpu_group> all;
  for (auto& [numa, group] : groups) all.push_back(std::move(group));
  return all;
}

/// Returns the NUMA node of a device. The kernel says -1 where there is only one.
std::uint32_t numa_of(const detail::machine_view& machine, const std::string& address) {
  const std::filesystem::path devices =
      std::filesystem::path(machine.root) / "sys/bus/pci/devices";
  std::ifstream file(devices / address / "numa_node");
  int numa = 0;
  file >> numa;
  return numa > 0 ? static_cast<std::uint32_t>(numa) : 0;
}

std::vector<gpu_resource> gpus_of(const detail::machine_view& machine,
                                  std::optional<std::string_view> visible) {
  const std::vector<detail::nvml_gpu> listed = detail::nvml_gpus(machine.nvml);
  std::vector<std::string> uuids;
  for (const detail::nvml_gpu& each : listed) uuids.push_back(each.uuid);
  std::vector<detail::visible_gpu> seen;
  if (visible) {
    seen = detail::visible_gpus(*visible, uuids);
  } else {
    for (std::size_t i = 0; i < uuids.size(); ++i)
      if (!uuids[i].empty()) seen.push_back({uuids[i], i});
  }
  std::vector<gpu_resource> gpus;
  for (const detail::visible_gpu& each : seen) {
    // Without NVML nothing is known of parts of GPUs either.
    if (listed.empty()) break;
    gpu_resource gpu{each.name};
    if (each.position != detail::visible_gpu::unknown) {
      const detail::nvml_gpu& whole = listed[each.position];
      gpu.numa = numa_of(machine, whole.address);
      if (each.name == whole.uuid) gpu.memory = whole.memory;
    }
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

std::string counted(std::size_t number, std::string_view one) {
  return fmt::format("{} {}{}", number, one, number == 1 ? "" : "s");
}

}  // namespace

namespace detail {

node_resources find_resources(std::string name, const machine_view& machine,
                              std::optional<std::string_view> visible) {
  node_resources found;
  found.name = std::move(name);
  found.cpus = cpus_by_numa(machine);
  found.memory = machine_memory(machine.root);
  found.gpus = gpus_of(machine, visible);
  return found;
}

}  // namespace detail

node_resources node_resources::of_this_machine(std::string name,
                                               std::optional<std::string_view> visible) {
  detail::machine_view machine;
  machine.allowed = detail::cpus_of_this_process();
  return detail::find_resources(std::move(name), machine, visible);
}

std::size_t node_resources::cpu_count() const noexcept {
  std::size_t count = 0;
  for (const cpu_group& group : cpus) count += group.cpus.size();
  return count;
}

std::string node_resources::text() const {
  std::string all = fmt::format("{}: {}", name, counted(cpu_count(), "CPU"));
  if (cpus.size() > 1) all += fmt::format(" on {} NUMA nodes", cpus.size());
  all += fmt::format(", {}, {}", detail::byte_size_text(memory),
                     counted(gpus.size(), "GPU"));
  for (std::size_t i = 0; i < labels.size(); ++i)
    all += (i == 0 ? ", labels " : " ") + labels[i];
  return all;
}

}  // namespace manyworlds::inline v0
