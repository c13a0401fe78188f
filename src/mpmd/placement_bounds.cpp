#include "mpmd/placement_bounds.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <utility>

namespace manyworlds::inline v0::detail {

namespace {

/// Returns how many of the largest it takes to reach the total.
std::uint32_t fewest_to_reach(std::uint64_t total, std::vector<std::uint64_t> each) {
  std::sort(each.begin(), each.end(), std::greater());
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < each.size(); ++i) {
    if (sum >= total) return i;
    sum = capped_sum(sum, each[i]);
  }
  const auto all = static_cast<std::uint32_t>(each.size());
  return sum >= total ? all : all + 1;
}

}  // namespace

void placement_load::add(const placement_bundle& bundle) noexcept {
  const placement_amount& need = bundle.need;
  if (bundles == 0) {
    least = need;
  } else {
    least.cpus = std::min(least.cpus, need.cpus);
    least.memory = std::min(least.memory, need.memory);
    least.gpus = std::min(least.gpus, need.gpus);
  }
  total += need;
  ++bundles;
}

std::uint32_t fewest_nodes(const placement_load& load,
                           const std::vector<placement_amount>& free) {
  std::vector<std::uint64_t> cpus;
  std::vector<std::uint64_t> memory;
  std::vector<std::uint64_t> gpus;
  std::vector<std::uint64_t> bundles;
  for (const placement_amount& each : free) {
    cpus.push_back(each.cpus);
    memory.push_back(each.memory);
    gpus.push_back(each.gpus);
    bundles.push_back(each.times(load.least));
  }
  return std::max({fewest_to_reach(load.total.cpus, std::move(cpus)),
                   fewest_to_reach(load.total.memory, std::move(memory)),
                   fewest_to_reach(load.total.gpus, std::move(gpus)),
                   fewest_to_reach(load.bundles, std::move(bundles))});
}

bool exceeds_all_nodes(const placement_problem& problem) {
  placement_load all;
  std::map<std::uint32_t, std::pair<const placement_bundle*, std::uint64_t>> forms;
  for (const placement_bundle& each : problem.bundles) {
    all.add(each);
    if (each.fixed_to != none) continue;
    auto& [example, count] = forms[each.form];
    example = &each;
    ++count;
  }
  std::vector<placement_amount> free;
  for (const placement_node& each : problem.nodes) free.push_back(each.free);
  if (all.bundles > 0 && fewest_nodes(all, free) > free.size()) return true;
  return std::any_of(forms.begin(), forms.end(), [&](const auto& form) {
    const auto& [example, count] = form.second;
    std::uint64_t room = 0;
    for (std::size_t n = 0; n < free.size() && room < count; ++n)
      if (problem.has_labels[example->labels][n] != 0)
        room = capped_sum(room, free[n].times(example->need));
    return room < count;
  });
}

std::uint64_t least_squares(std::vector<std::uint64_t> held,
                            std::vector<std::uint64_t> room, std::uint64_t instances) {
  // Each goes where the fewest are: nothing else is more even.
  using place = std::pair<std::uint64_t, std::size_t>;
  std::priority_queue<place, std::vector<place>, std::greater<>> fewest;
  for (std::size_t i = 0; i < held.size(); ++i)
    if (room[i] > 0) fewest.emplace(held[i], i);
  for (std::uint64_t i = 0; i < instances && !fewest.empty(); ++i) {
    const std::size_t node = fewest.top().second;
    fewest.pop();
    ++held[node];
    if (--room[node] > 0) fewest.emplace(held[node], node);
  }
  std::uint64_t squares = 0;
  for (const std::uint64_t each : held) squares = capped_sum(squares, each * each);
  return squares;
}

}  // namespace manyworlds::inline v0::detail
