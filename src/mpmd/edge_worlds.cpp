#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "mpmd/role_core.hpp"

namespace manyworlds::inline v0::detail {

/// The worlds of an edge stand under the job's own prefix in the store, so that their
/// names need nothing of the job.
static world_name name_of_pair(const graph_edge& edge, std::uint32_t from,
                               std::uint32_t to) {
  return world_name(
      fmt::format("{}/{}.{}-{}.{}", edge.name, edge.from, from, edge.to, to));
}

static edge_world pair_of(const graph_edge& edge, std::uint32_t from, std::uint32_t to,
                          bool is_from) {
  edge_world own;
  own.name = name_of_pair(edge, from, to);
  own.rank = is_from ? 0 : 1;
  own.peer = is_from ? instance_id{edge.to, to} : instance_id{edge.from, from};
  return own;
}

/// The pairs of one role with itself: the lower index is rank 0.
static std::vector<edge_world> pairs_within(const graph_edge& edge, std::uint32_t count,
                                            std::uint32_t self) {
  std::vector<edge_world> all;
  for (std::uint32_t other = 0; other < count; ++other) {
    if (other == self) continue;
    all.push_back(
        pair_of(edge, std::min(self, other), std::max(self, other), self < other));
  }
  return all;
}

static edge_world group_of(const graph_edge& edge, const graph_role& from,
                           const graph_role& to, const instance_id& self) {
  edge_world own;
  own.name = world_name(edge.name);
  const bool is_one_role = edge.from == edge.to;
  const std::uint32_t size = from.counts.start + (is_one_role ? 0 : to.counts.start);
  const bool is_from = self.role == edge.from;
  own.size = static_cast<rank_t>(size);
  own.rank = static_cast<rank_t>(is_from ? self.index : from.counts.start + self.index);
  return own;
}

std::vector<edge_world> worlds_of_edge(const job_graph& graph, const graph_edge& edge,
                                       const instance_id& self) {
  const bool is_from = self.role == edge.from;
  if (!is_from && self.role != edge.to)
    throw std::logic_error(
        fmt::format("the edge \"{}\" is not one of role \"{}\"", edge.name, self.role));
  const graph_role& from = *graph.find_role(edge.from);
  const graph_role& to = *graph.find_role(edge.to);
  if (edge.kind == edge_kind::bulk && edge.shape == edge_shape::group)
    return {group_of(edge, from, to, self)};
  if (edge.from == edge.to) return pairs_within(edge, from.counts.max, self.index);
  const std::uint32_t peers = is_from ? to.counts.max : from.counts.max;
  std::vector<edge_world> all;
  for (std::uint32_t peer = 0; peer < peers; ++peer) {
    const bool is_aligned =
        edge.kind == edge_kind::bulk && edge.shape == edge_shape::aligned;
    if (is_aligned && peer != self.index) continue;
    all.push_back(is_from ? pair_of(edge, self.index, peer, true)
                          : pair_of(edge, peer, self.index, false));
  }
  return all;
}

/// Each pair has a world for each direction in which it asks: of one role with itself
/// two.
std::vector<edge_world> worlds_of_calls(const job_graph& graph, const graph_edge& edge,
                                        const instance_id& self, bool asks) {
  const std::string& own = asks ? edge.from : edge.to;
  if (self.role != own)
    throw std::logic_error(
        fmt::format("at the edge \"{}\" role \"{}\" {}, and this is {}", edge.name, own,
                    asks ? "asks" : "answers", self.text()));
  const graph_role& others = *graph.find_role(asks ? edge.to : edge.from);
  std::vector<edge_world> all;
  for (std::uint32_t peer = 0; peer < others.counts.max; ++peer) {
    if (others.name == self.role && peer == self.index) continue;
    all.push_back(asks ? pair_of(edge, self.index, peer, true)
                       : pair_of(edge, peer, self.index, false));
  }
  return all;
}

}  // namespace manyworlds::inline v0::detail
