#include "mpmd/placement_devices.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// What is free of a NUMA node. The next to be given is the last.
struct numa_share {
  std::vector<std::uint32_t> cpus;
  std::vector<std::string> gpus;
};

/// What is free of a node.
class free_devices {
 public:
  void add(const node_resources& node, const std::unordered_set<std::uint32_t>& cpus,
           const std::unordered_set<std::string_view>& gpus) {
    for (const cpu_group& group : node.cpus) {
      numa_share& share = numa_[group.numa];
      for (const std::uint32_t cpu : group.cpus)
        if (!cpus.contains(cpu)) share.cpus.push_back(cpu);
    }
    for (const gpu_resource& gpu : node.gpus) {
      numa_of_gpu_[gpu.uuid] = gpu.numa;
      if (!gpus.contains(gpu.uuid)) numa_[gpu.numa].gpus.push_back(gpu.uuid);
    }
    for (auto& [number, share] : numa_) {
      std::reverse(share.cpus.begin(), share.cpus.end());
      std::reverse(share.gpus.begin(), share.gpus.end());
    }
  }

  /// Adds that number of GPUs to `chosen`, for instances that take `cpus` CPUs in all.
  void take_gpus(std::uint64_t count, std::uint64_t cpus,
                 std::vector<std::string>& chosen) {
    while (count > 0) {
      numa_share& from = best_for_gpus(count, cpus);
      MW_ASSERT(!from.gpus.empty(), "what was placed has its GPUs");
      while (count > 0 && !from.gpus.empty()) {
        chosen.push_back(std::move(from.gpus.back()));
        from.gpus.pop_back();
        --count;
      }
    }
  }

  /// Returns that number of CPUs, near to those GPUs where it can.
  [[nodiscard]] std::vector<std::uint32_t> take_cpus(
      std::uint64_t count, const std::vector<std::string>& gpus) {
    std::vector<std::uint32_t> chosen;
    while (chosen.size() < count) {
      numa_share& from = best_for_cpus(count - chosen.size(), near(gpus));
      MW_ASSERT(!from.cpus.empty(), "what was placed has its CPUs");
      while (chosen.size() < count && !from.cpus.empty()) {
        chosen.push_back(from.cpus.back());
        from.cpus.pop_back();
      }
    }
    std::sort(chosen.begin(), chosen.end());
    return chosen;
  }

 private:
  /// Prefers a NUMA node that has all of the GPUs, then one that has the CPUs too, then
  /// the one with the fewest that do; or else the one with the most GPUs.
  [[nodiscard]] numa_share& best_for_gpus(std::uint64_t gpus, std::uint64_t cpus) {
    return best([&](std::uint32_t, const numa_share& share) {
      const std::uint64_t there = share.gpus.size();
      return std::tuple(there < gpus, there < gpus ? ~there : 0, share.cpus.size() < cpus,
                        there, share.cpus.size());
    });
  }

  /// Prefers the NUMA node that is near, if it has all of them; then the one with the
  /// fewest that do, so that large rests stay; or else what is near, and then the
  /// largest.
  [[nodiscard]] numa_share& best_for_cpus(std::uint64_t cpus, std::uint32_t near) {
    return best([&](std::uint32_t number, const numa_share& share) {
      const std::uint64_t there = share.cpus.size();
      const bool is_far = number != near;
      return std::tuple(there == 0, there < cpus, is_far, there < cpus ? ~there : there);
    });
  }

  template <class Rank>
  [[nodiscard]] numa_share& best(Rank rank_of) {
    auto chosen = numa_.begin();
    MW_ASSERT(chosen != numa_.end(), "a node on which something was placed has devices");
    for (auto each = std::next(chosen); each != numa_.end(); ++each)
      if (rank_of(each->first, each->second) < rank_of(chosen->first, chosen->second))
        chosen = each;
    return chosen->second;
  }

  /// Returns the NUMA node of most of the GPUs; `none` without any.
  [[nodiscard]] std::uint32_t near(const std::vector<std::string>& gpus) const {
    std::map<std::uint32_t, std::size_t> counts;
    std::uint32_t most = none;
    for (const std::string& each : gpus) {
      const auto found = numa_of_gpu_.find(each);
      if (found == numa_of_gpu_.end()) continue;
      ++counts[found->second];
      if (most == none || counts[found->second] > counts[most]) most = found->second;
    }
    return most;
  }

  std::map<std::uint32_t, numa_share> numa_;
  std::unordered_map<std::string_view, std::uint32_t> numa_of_gpu_;
};

/// Gives to the bundles of one node.
class node_givings {
 public:
  node_givings(const placement_problem& problem, std::vector<instance_place>& places)
      : problem_(problem), places_(places) {}

  [[nodiscard]] free_devices& free() noexcept { return free_; }
  void add(const placement_bundle& bundle) { bundles_.push_back(&bundle); }

  void give() {
    give_gpus();
    std::vector<std::uint32_t> members;
    for (const placement_bundle* const each : bundles_)
      members.insert(members.end(), each->wanted.begin(), each->wanted.end());
    // Those with GPUs first, since only they care which CPUs they have.
    std::sort(members.begin(), members.end(), [this](std::uint32_t a, std::uint32_t b) {
      return std::tuple(places_[a].gpus.empty(), ~needs(a).cpus, a) <
             std::tuple(places_[b].gpus.empty(), ~needs(b).cpus, b);
    });
    for (const std::uint32_t one : members)
      places_[one].cpus = free_.take_cpus(needs(one).cpus, places_[one].gpus);
  }

 private:
  [[nodiscard]] const role_needs& needs(std::uint32_t one) const {
    return problem_.role_of(one).needs;
  }

  void give_gpus() {
    std::vector<std::pair<const gpu_share*, std::uint64_t>> shares;
    for (const placement_bundle* const bundle : bundles_) {
      for (const gpu_share& share : bundle->shares) {
        std::uint64_t cpus = 0;
        for (const std::uint32_t one : share.wanted) cpus += needs(one).cpus;
        if (!share.wanted.empty()) shares.emplace_back(&share, cpus);
      }
    }
    std::sort(shares.begin(), shares.end(), [](const auto& a, const auto& b) {
      return std::tuple(~a.first->gpus, ~a.second, a.first->wanted.front()) <
             std::tuple(~b.first->gpus, ~b.second, b.first->wanted.front());
    });
    for (const auto& [share, cpus] : shares) {
      std::vector<std::string> gpus = share->held;
      if (gpus.size() < share->gpus)
        free_.take_gpus(share->gpus - gpus.size(), cpus, gpus);
      for (const std::uint32_t one : share->wanted) {
        const auto last = gpus.begin() + static_cast<std::ptrdiff_t>(needs(one).gpus);
        places_[one].gpus.assign(gpus.begin(), last);
      }
    }
  }

  const placement_problem& problem_;
  std::vector<instance_place>& places_;
  free_devices free_;
  std::vector<const placement_bundle*> bundles_;
};

}  // namespace

void give_devices(const placement_problem& problem, std::span<const instance_place> taken,
                  const std::vector<std::uint32_t>& node_of,
                  std::vector<instance_place>& places) {
  std::vector<std::unordered_set<std::uint32_t>> cpus(problem.nodes.size());
  std::vector<std::unordered_set<std::string_view>> gpus(problem.nodes.size());
  for (std::size_t i = 0; i < taken.size(); ++i) {
    const std::uint32_t node = problem.standing[i].node;
    if (node == none) continue;
    cpus[node].insert(taken[i].cpus.begin(), taken[i].cpus.end());
    gpus[node].insert(taken[i].gpus.begin(), taken[i].gpus.end());
  }
  std::vector<node_givings> givings(problem.nodes.size(), node_givings(problem, places));
  for (std::size_t n = 0; n < givings.size(); ++n)
    givings[n].free().add(*problem.nodes[n].given, cpus[n], gpus[n]);
  for (std::size_t i = 0; i < problem.bundles.size(); ++i)
    givings[node_of[i]].add(problem.bundles[i]);
  for (node_givings& each : givings) each.give();
}

}  // namespace manyworlds::inline v0::detail
