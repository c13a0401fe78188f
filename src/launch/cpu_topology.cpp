#include "launch/cpu_topology.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>

namespace manyworlds::inline v0::detail {

namespace {

namespace fs = std::filesystem;

/// Returns the first line of a file; nothing if it cannot be read.
std::optional<std::string> line_of(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<unsigned> number_in(const fs::path& path) {
  const std::vector<unsigned> all = numbers_in_ranges(line_of(path).value_or(""));
  return all.empty() ? std::nullopt : std::optional(all.front());
}

/// Returns the files of a folder that are called `name` and a number, by that number.
std::map<unsigned, fs::path> numbered(const fs::path& folder, std::string_view name) {
  std::map<unsigned, fs::path> found;
  std::error_code error;
  for (fs::directory_iterator each(folder, error), end; !error && each != end;
       each.increment(error)) {
    const std::string called = each->path().filename();
    unsigned number = 0;
    const char* const last = called.data() + called.size();
    if (called.compare(0, name.size(), name) != 0) continue;
    const auto parsed = std::from_chars(called.data() + name.size(), last, number);
    if (parsed.ec == std::errc() && parsed.ptr == last) found[number] = each->path();
  }
  return found;
}

/// Returns the least CPU with which this one shares its last cache.
unsigned last_cache_of(const fs::path& cpu, unsigned itself) {
  unsigned highest = 0;
  unsigned least = itself;
  for (const auto& [index, cache] : numbered(cpu / "cache", "index")) {
    if (line_of(cache / "type") == "Instruction") continue;
    const unsigned level = number_in(cache / "level").value_or(0);
    if (level <= highest) continue;
    highest = level;
    least = number_in(cache / "shared_cpu_list").value_or(itself);
  }
  return least;
}

/// A GPU as NVIDIA's driver lists it.
struct listed_gpu {
  std::string address;
  std::string uuid;
};

/// Returns them by their addresses on the bus, as CUDA_DEVICE_ORDER=PCI_BUS_ID does.
std::vector<listed_gpu> gpus_below(const fs::path& root) {
  std::vector<listed_gpu> gpus;
  std::error_code error;
  for (fs::directory_iterator each(root / "proc/driver/nvidia/gpus", error), end;
       !error && each != end; each.increment(error)) {
    listed_gpu gpu{each->path().filename(), {}};
    std::ifstream facts(each->path() / "information");
    for (std::string line; std::getline(facts, line);) {
      const std::size_t uuid = line.find("GPU-");
      if (uuid != std::string::npos) gpu.uuid = line.substr(uuid);
    }
    gpus.push_back(std::move(gpu));
  }
  std::sort(gpus.begin(), gpus.end(),
            [](const auto& a, const auto& b) { return a.address < b.address; });
  return gpus;
}

/// Returns those that CUDA_VISIBLE_DEVICES names, in its order. As CUDA has it, the first
/// that is not there ends the list.
std::vector<listed_gpu> seen_of(const std::vector<listed_gpu>& all,
                                const std::string& visible) {
  std::vector<listed_gpu> seen;
  for (std::size_t at = 0; at < visible.size();) {
    const std::size_t end = std::min(visible.find(',', at), visible.size());
    const std::string name = visible.substr(at, end - at);
    at = end + 1;
    const std::vector<unsigned> number = numbers_in_ranges(name);
    const auto found = std::find_if(all.begin(), all.end(), [&](const listed_gpu& gpu) {
      const auto position = static_cast<unsigned>(&gpu - all.data());
      const bool is_uuid = name.compare(0, 4, "GPU-") == 0;
      return is_uuid ? gpu.uuid.compare(0, name.size(), name) == 0
                     : number.size() == 1 && number.front() == position;
    });
    if (found == all.end()) break;
    seen.push_back(*found);
  }
  return seen;
}

/// The workers that share the CPUs of one NUMA node, and which of them is meant.
struct node_share {
  unsigned node = 0;
  std::size_t position = 0;
  std::size_t workers = 0;
};

node_share share_of(const cpu_topology& machine, int local_rank, int workers) {
  const auto rank = static_cast<std::size_t>(local_rank);
  std::vector<unsigned> node_of_each;
  if (!machine.gpu_nodes.empty()) {
    // A GPU without a worker keeps its share, as with torch.
    const std::size_t gpus = machine.gpu_nodes.size();
    const std::size_t shares = std::max(gpus, static_cast<std::size_t>(workers));
    for (std::size_t i = 0; i < shares; ++i)
      node_of_each.push_back(machine.gpu_nodes[i % gpus]);
  } else {
    std::set<unsigned> nodes;
    for (const logical_cpu& each : machine.cpus) nodes.insert(each.node);
    const std::vector<unsigned> all(nodes.begin(), nodes.end());
    const auto count = static_cast<std::size_t>(workers);
    for (std::size_t i = 0; i < count; ++i)
      node_of_each.push_back(all[i * all.size() / count]);
  }
  const unsigned node = node_of_each[rank];
  const auto own = node_of_each.begin() + local_rank;
  return {node, static_cast<std::size_t>(std::count(node_of_each.begin(), own, node)),
          static_cast<std::size_t>(
              std::count(node_of_each.begin(), node_of_each.end(), node))};
}

using cpu_groups = std::map<unsigned, std::vector<unsigned>>;

std::vector<unsigned> exclusive_cores(const cpu_groups& cores, const node_share& share) {
  if (cores.size() < share.workers) {
    throw std::invalid_argument(fmt::format(
        "NUMA binding: node {} has {} cores for {} workers, which cannot each "
        "have one alone",
        share.node, cores.size(), share.workers));
  }
  // The first workers get one more where they cannot be shared out evenly.
  const std::size_t each = cores.size() / share.workers;
  const std::size_t more = cores.size() % share.workers;
  const std::size_t begin = share.position * each + std::min(share.position, more);
  const std::size_t count = each + (share.position < more ? 1 : 0);
  std::vector<unsigned> chosen;
  auto core = std::next(cores.begin(), static_cast<std::ptrdiff_t>(begin));
  for (std::size_t i = 0; i < count; ++i, ++core)
    chosen.insert(chosen.end(), core->second.begin(), core->second.end());
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

/// Takes the caches with the most CPUs first, and the same one again if there are fewer
/// than workers.
std::vector<unsigned> one_cache(const cpu_groups& caches, const node_share& share) {
  std::vector<std::vector<unsigned>> by_size;
  for (const auto& [least, cpus] : caches) by_size.push_back(cpus);
  std::stable_sort(by_size.begin(), by_size.end(),
                   [](const auto& a, const auto& b) { return a.size() > b.size(); });
  return by_size[share.position % by_size.size()];
}

}  // namespace

std::vector<unsigned> cpus_of_this_process() {
  // The kernel refuses a set that is smaller than its own.
  for (std::size_t sets = 1; sets <= 64; sets *= 2) {
    std::vector<cpu_set_t> allowed(sets);
    const std::size_t bytes = sets * sizeof(cpu_set_t);
    if (::sched_getaffinity(0, bytes, allowed.data()) != 0) continue;
    std::vector<unsigned> numbers;
    for (unsigned i = 0; i < bytes * 8; ++i) {
      if (CPU_ISSET_S(i, bytes, allowed.data())) numbers.push_back(i);
    }
    return numbers;
  }
  return {};
}

std::vector<unsigned> numbers_in_ranges(std::string_view text) {
  std::vector<unsigned> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  constexpr unsigned most = 1u << 16;
  while (at != end) {
    unsigned first = 0;
    auto parsed = std::from_chars(at, end, first);
    if (parsed.ec != std::errc()) break;
    unsigned last = first;
    if (parsed.ptr != end && *parsed.ptr == '-')
      parsed = std::from_chars(parsed.ptr + 1, end, last);
    if (parsed.ec != std::errc() || last >= most) break;
    for (unsigned i = first; i <= last; ++i) numbers.push_back(i);
    at = parsed.ptr;
    if (at == end || *at != ',') break;
    ++at;
  }
  return numbers;
}

cpu_topology read_cpu_topology(const std::string& root,
                               const std::vector<unsigned>& allowed,
                               const std::optional<std::string>& visible) {
  const fs::path system = fs::path(root) / "sys/devices/system";
  std::map<unsigned, unsigned> node_of;
  for (const auto& [node, folder] : numbered(system / "node", "node")) {
    for (const unsigned cpu : numbers_in_ranges(line_of(folder / "cpulist").value_or("")))
      node_of[cpu] = node;
  }
  cpu_topology machine;
  for (const unsigned number : allowed) {
    const fs::path cpu = system / "cpu" / fmt::format("cpu{}", number);
    const fs::path place = cpu / "topology";
    logical_cpu one{number};
    one.node = node_of.contains(number) ? node_of[number] : 0;
    one.socket = number_in(place / "physical_package_id").value_or(0);
    one.core = number_in(place / "thread_siblings_list").value_or(number);
    one.cache = last_cache_of(cpu, number);
    machine.cpus.push_back(one);
  }
  const std::vector<listed_gpu> all = gpus_below(root);
  for (const listed_gpu& each : visible ? seen_of(all, *visible) : all) {
    const fs::path device = fs::path(root) / "sys/bus/pci/devices" / each.address;
    // It is -1 on machines of one node.
    machine.gpu_nodes.push_back(number_in(device / "numa_node").value_or(0));
  }
  return machine;
}

std::vector<unsigned> cpus_of_worker(const cpu_topology& machine, numa_binding how,
                                     int local_rank, int workers) {
  if (machine.cpus.empty())
    throw std::invalid_argument("NUMA binding: this process may use no CPU");
  const node_share share = share_of(machine, local_rank, workers);
  cpu_groups sockets;
  cpu_groups cores;
  cpu_groups caches;
  std::vector<unsigned> near;
  std::optional<unsigned> socket;
  for (const logical_cpu& each : machine.cpus) {
    sockets[each.socket].push_back(each.number);
    if (each.node != share.node) continue;
    if (!socket) socket = each.socket;
    near.push_back(each.number);
    cores[each.core].push_back(each.number);
    caches[each.cache].push_back(each.number);
  }
  if (!socket) {
    throw std::invalid_argument(
        fmt::format("NUMA binding: of node {}, where the GPU of local rank {} is, this "
                    "process may use no CPU",
                    share.node, local_rank));
  }
  switch (how) {
    case numa_binding::socket:
      return sockets[*socket];
    case numa_binding::exclusive:
      return exclusive_cores(cores, share);
    case numa_binding::core_complex:
      return one_cache(caches, share);
    case numa_binding::none:
    case numa_binding::node:
      break;
  }
  return near;
}

std::vector<std::vector<unsigned>> cpus_of_workers(const launch_options& job) {
  std::vector<std::vector<unsigned>> all;
  if (job.binding == numa_binding::none) return all;
  const auto found = job.inherited.find("CUDA_VISIBLE_DEVICES");
  const auto visible =
      found == job.inherited.end() ? std::nullopt : std::optional(found->second);
  const cpu_topology machine = read_cpu_topology("/", cpus_of_this_process(), visible);
  for (int i = 0; i < job.workers; ++i)
    all.push_back(cpus_of_worker(machine, job.binding, i, job.workers));
  return all;
}

}  // namespace manyworlds::inline v0::detail
