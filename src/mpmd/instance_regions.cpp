#include "mpmd/instance_regions.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace manyworlds::inline v0::detail {

/// Sets that are joined, as Tarjan has it: each set is a tree, and its
/// root names it.
class joined_sets {
 public:
  explicit joined_sets(std::size_t count) : parent_(count) {
    std::iota(parent_.begin(), parent_.end(), std::size_t{0});
  }

  std::size_t root_of(std::size_t n) {
    while (parent_[n] != n) n = parent_[n] = parent_[parent_[n]];
    return n;
  }
  void join(std::size_t a, std::size_t b) { parent_[root_of(a)] = root_of(b); }

 private:
  std::vector<std::size_t> parent_;
};

static std::pair<std::size_t, std::size_t> range_of(const job_context& job,
                                                    std::string_view role) {
  const auto& roles = job.graph().roles();
  for (std::size_t n = 0; n < roles.size(); ++n)
    if (roles[n].name == role) return job.range_of(n);
  return {0, 0};
}

static void join_edge(joined_sets& sets, const job_context& job, const graph_edge& edge) {
  const auto from = range_of(job, edge.from);
  const auto to = range_of(job, edge.to);
  if (edge.kind == edge_kind::bulk && edge.shape == edge_shape::aligned) {
    const std::size_t common = std::min(from.second - from.first, to.second - to.first);
    for (std::size_t i = 0; i < common; ++i) sets.join(from.first + i, to.first + i);
    return;
  }
  if (from.first == from.second || to.first == to.second) return;
  for (std::size_t i = from.first; i < from.second; ++i) sets.join(i, to.first);
  for (std::size_t i = to.first; i < to.second; ++i) sets.join(i, to.first);
}

instance_regions::instance_regions(const job_context& job) : region_(job.size()) {
  joined_sets sets(job.size());
  for (const graph_edge& edge : job.graph().edges())
    if (edge.on_loss == edge_loss::restart_together) join_edge(sets, job, edge);
  std::vector<std::size_t> number_of_root(job.size(), job.size());
  for (std::size_t n = 0; n < job.size(); ++n) {
    std::size_t& number = number_of_root[sets.root_of(n)];
    if (number == job.size()) {
      number = members_.size();
      members_.emplace_back();
    }
    region_[n] = number;
    members_[number].push_back(n);
  }
}

}  // namespace manyworlds::inline v0::detail
