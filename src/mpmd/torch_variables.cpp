#include "mpmd/torch_variables.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace manyworlds::inline v0::detail {

namespace {

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

const rank_place& rank_places::of(std::size_t instance) {
  const std::size_t role = job_.role_number(instance);
  std::vector<rank_place>& places = by_role_[role];
  if (places.empty()) count(role, places);
  return places[instance - job_.range_of(role).first];
}

/// Nodes are counted in the order in which the instances name them.
void rank_places::count(std::size_t role, std::vector<rank_place>& places) const {
  const auto [first, end] = job_.range_of(role);
  places.resize(end - first);
  struct ranks_there {
    std::size_t node = 0;
    std::size_t ranks = 0;
  };
  std::unordered_map<std::string_view, ranks_there> nodes;
  const auto each_rank = [&, first = first, end = end](auto see) {
    // The controller of a session is none of its workers, and has no device of theirs.
    const bool is_session = job_.role_of(first).kind == role_kind::spmd;
    for (std::size_t n = first + (is_session ? 1 : 0); n < end; ++n)
      see(std::string_view(job_.at(n).place.node), places[n - first]);
  };
  each_rank([&](std::string_view node, rank_place& place) {
    if (node.empty()) return;
    ranks_there& there = nodes.try_emplace(node, ranks_there{nodes.size()}).first->second;
    place.local_rank = there.ranks++;
  });
  each_rank([&](std::string_view node, rank_place& place) {
    const auto found = nodes.find(node);
    const bool is_placed = found != nodes.end();
    place.local_size = is_placed ? found->second.ranks : 0;
    place.node = is_placed ? found->second.node : nodes.size();
    place.nodes = nodes.size();
  });
}

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
                                                   rank_places& places,
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
  const rank_place& place = places.of(instance);
  const bool has_gpus = role.needs.gpus > 0;
  all["LOCAL_RANK"] = std::to_string(has_gpus ? 0 : place.local_rank);
  all["LOCAL_WORLD_SIZE"] = std::to_string(place.local_size);
  all["GROUP_RANK"] = std::to_string(place.node);
  all["GROUP_WORLD_SIZE"] = std::to_string(place.nodes);
  return all;
}

}  // namespace manyworlds::inline v0::detail
