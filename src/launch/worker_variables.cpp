#include "launch/worker_variables.hpp"

#include <algorithm>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

namespace {

bool has_hip_devices(const launch_variables& starters) {
  const auto set = starters.find("HIP_VISIBLE_DEVICES");
  return set != starters.end() && !set->second.empty();
}

/// Returns the device that a local rank has, by position.
std::string device_of(const launch_variables& starters, int local_rank) {
  const auto devices = visible_devices(starters);
  if (!devices) return std::to_string(local_rank);
  const auto at = static_cast<std::size_t>(local_rank);
  MW_ASSERT(at < devices->size(), "the job was checked to have a device for each worker");
  return (*devices)[at];
}

}  // namespace

std::optional<std::vector<std::string>> visible_devices(
    const launch_variables& starters) {
  const auto set = starters.find(has_hip_devices(starters) ? "HIP_VISIBLE_DEVICES"
                                                           : "CUDA_VISIBLE_DEVICES");
  if (set == starters.end()) return std::nullopt;
  std::vector<std::string> all;
  for (std::string_view left = set->second; !left.empty();) {
    const std::size_t comma = std::min(left.find(','), left.size());
    std::string_view one = left.substr(0, comma);
    while (one.starts_with(' ')) one.remove_prefix(1);
    while (one.ends_with(' ')) one.remove_suffix(1);
    all.emplace_back(one);
    left.remove_prefix(std::min(comma + 1, left.size()));
  }
  return all;
}

launch_variables variables_of_worker(const launch_options& job, const round& r,
                                     const round_node& node, const worker_place& where) {
  const launch_variables& starters = job.inherited;
  const int rank = node.first_rank + where.local_rank;
  launch_variables set = job.variables;
  const auto put = [&](const char* name, auto value) {
    if constexpr (std::is_arithmetic_v<decltype(value)>) {
      set.insert_or_assign(name, std::to_string(value));
    } else {
      set.insert_or_assign(name, std::string(value));
    }
  };
  put("RANK", rank);
  put("WORLD_SIZE", r.size());
  put("LOCAL_RANK", job.virtual_local_rank ? 0 : where.local_rank);
  put("LOCAL_WORLD_SIZE", node.slots);
  put("GROUP_RANK", node.rank);
  put("GROUP_WORLD_SIZE", r.nodes.size());
  put("ROLE_NAME", node.role);
  put("ROLE_RANK", node.first_role_rank + where.local_rank);
  put("ROLE_WORLD_SIZE", node.role_size);
  put("MASTER_ADDR", where.store_host);
  put("MASTER_PORT", where.store_port);
  put("TORCHELASTIC_RESTART_COUNT", where.restarts);
  put("TORCHELASTIC_MAX_RESTARTS", job.max_restarts);
  put("TORCHELASTIC_RUN_ID", r.run);
  put("TORCHELASTIC_USE_AGENT_STORE", "True");
  put("TORCHELASTIC_ERROR_FILE", where.error_file);
  if (!starters.contains("TORCH_NCCL_ASYNC_ERROR_HANDLING"))
    put("TORCH_NCCL_ASYNC_ERROR_HANDLING", 1);
  if (node.slots > 1 && !starters.contains("OMP_NUM_THREADS")) put("OMP_NUM_THREADS", 1);
  if (job.virtual_local_rank) {
    put("CUDA_VISIBLE_DEVICES", device_of(starters, where.local_rank));
    if (has_hip_devices(starters))
      put("HIP_VISIBLE_DEVICES", device_of(starters, where.local_rank));
  }
  put("MANYWORLDS_RUN_ID", r.run);
  put("MANYWORLDS_ATTEMPT", where.attempt);
  put("MANYWORLDS_INCARNATION", where.incarnation);
  if (!where.result_file.empty()) put("MANYWORLDS_RESULT_FILE", where.result_file);
  return set;
}

std::string with_local_rank(std::string argument, int local_rank) {
  static constexpr std::string_view macro = "${local_rank}";
  const std::string number = std::to_string(local_rank);
  for (std::size_t at = argument.find(macro); at != std::string::npos;
       at = argument.find(macro, at + number.size()))
    argument.replace(at, macro.size(), number);
  return argument;
}

}  // namespace manyworlds::inline v0::detail
