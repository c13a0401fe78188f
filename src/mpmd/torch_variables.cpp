#include "mpmd/torch_variables.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace manyworlds::inline v0::detail {

namespace {

struct rank_place {
  std::size_t local_rank = 0;
  std::size_t local_size = 1;
  std::size_t node = 0;
  std::size_t nodes = 1;
};

/// Returns its place among the instances of its role. Nodes are counted in the order in
/// which the instances name them. The controller of a session is none of its workers, and
/// has no device of theirs.
rank_place place_of(const job_context& job, std::size_t instance) {
  const bool is_session = job.role_of(instance).kind == role_kind::spmd;
  if (is_session && job.id(instance).index == 0) return {};
  const auto [first, end] = job.range_of(job.role_number(instance));
  const std::string& own = job.at(instance).place.node;
  std::vector<std::string> seen;
  rank_place place;
  place.local_size = 0;
  for (std::size_t n = first + (is_session ? 1 : 0); n < end; ++n) {
    const std::string& node = job.at(n).place.node;
    if (node.empty()) continue;
    if (std::find(seen.begin(), seen.end(), node) == seen.end()) seen.push_back(node);
    if (node != own) continue;
    ++place.local_size;
    place.local_rank += n < instance ? 1 : 0;
  }
  const auto at = std::find(seen.begin(), seen.end(), own);
  place.node = static_cast<std::size_t>(at - seen.begin());
  place.nodes = seen.size();
  return place;
}

/// Returns where others reach the node of an instance: as its agent says now, or said
/// when it was started.
std::string address_of(const job_context& job, const node_views& nodes,
                       std::size_t instance) {
  const instance_record& record = job.at(instance);
  // One that has lost its node will be elsewhere, and it is not known yet where.
  if (record.place.node.empty()) return {};
  const node_view* const view = nodes.find(record.place.node);
  const bool is_told = view != nullptr && !view->resources.address.empty();
  return is_told ? view->resources.address : record.address;
}

}  // namespace

std::uint32_t rank_port(const job_context& job, std::size_t role) {
  const std::size_t first = job.range_of(role).first;
  // Of one that waits the next incarnation is meant: what starts ahead of it will meet
  // it.
  const instance_record& leads = job.at(first);
  const bool is_to_come = leads.phase == instance_phase::waiting;
  const std::uint64_t incarnation = leads.incarnation + (is_to_come ? 1 : 0);
  constexpr std::uint64_t ports = end_of_rank_ports - first_rank_port;
  const std::uint64_t roles = job.graph().roles().size();
  const std::uint64_t at =
      job.job().number % ports + incarnation % ports * roles % ports + role % ports;
  return first_rank_port + static_cast<std::uint32_t>(at % ports);
}

std::map<std::string, std::string> torch_variables(const job_context& job,
                                                   const node_views& nodes,
                                                   std::size_t instance) {
  const graph_role& role = job.role_of(instance);
  const std::size_t number = job.role_number(instance);
  std::map<std::string, std::string> all;
  const bool restarts = role.restarts != restart_when::never;
  all["TORCHELASTIC_MAX_RESTARTS"] = std::to_string(restarts ? role.budget.tries : 0);
  const std::string address = address_of(job, nodes, job.range_of(number).first);
  if (!address.empty()) {
    all["MASTER_ADDR"] = address;
    all["MASTER_PORT"] = std::to_string(rank_port(job, number));
  }
  // Who sets one of these sets what belongs to it.
  static constexpr std::array names{"RANK",       "WORLD_SIZE",
                                    "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                    "GROUP_RANK", "GROUP_WORLD_SIZE"};
  const bool sets_own = std::any_of(names.begin(), names.end(), [&](const char* name) {
    return role.variables.contains(name);
  });
  if (sets_own) return all;
  const rank_place place = place_of(job, instance);
  const bool has_gpus = role.needs.gpus > 0;
  all["LOCAL_RANK"] = std::to_string(has_gpus ? 0 : place.local_rank);
  all["LOCAL_WORLD_SIZE"] = std::to_string(place.local_size);
  all["GROUP_RANK"] = std::to_string(place.node);
  all["GROUP_WORLD_SIZE"] = std::to_string(place.nodes);
  return all;
}

}  // namespace manyworlds::inline v0::detail
