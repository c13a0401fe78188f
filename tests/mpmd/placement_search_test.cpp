// The search for places: how many nodes it looks at, and that it chooses as one that
// looks at all of them.
#include <limits>

#include "mpmd/placement_search.hpp"
#include "placement_cases.hpp"

namespace manyworlds::mpmd_tests {

namespace {

using detail::none;
using detail::obstacle;

constexpr std::size_t all_in_classes = 0;
constexpr std::size_t none_in_classes = std::numeric_limits<std::size_t>::max();

detail::placement_problem problem_of(const job_graph& graph,
                                     const std::vector<node_resources>& nodes,
                                     const std::vector<instance_id>& wanted,
                                     const std::vector<instance_place>& taken = {}) {
  std::vector<const graph_place*> rules;
  for (const graph_place& each : graph.places()) rules.push_back(&each);
  return detail::make_placement_problem(graph, nodes, wanted, taken, rules);
}

// --- looks ----------------------------------------------------------------------------

struct looks_at_nodes {
  std::uint64_t by_classes = 0;
  std::uint64_t one_by_one = 0;
  std::uint64_t bundles = 0;
  [[nodiscard]] std::uint64_t of_each_bundle() const { return by_classes / bundles; }
};

/// Places instances of four roles on a tenth of that many nodes, by rules that `add`
/// adds.
looks_at_nodes looks_for(std::uint32_t instances,
                         const std::function<void(job_graph&)>& add) {
  job_graph graph("large");
  for (const char* const role : {"a", "b", "c", "d"})
    add_role(graph, role, instances / 4, {1, gib, 0, {}});
  add(graph);
  std::vector<node_resources> nodes;
  for (std::uint32_t n = 0; n < instances / 10; ++n) {
    nodes.push_back(node_of("n" + std::to_string(n), {8, 8}));
    // Machines that are sold as equal have a few MiB more or less.
    nodes.back().memory -= n % 64 * (gib / 1024);
  }
  const std::vector<instance_id> wanted = all_of(graph);
  const detail::placement_problem problem = problem_of(graph, nodes, wanted);
  const auto looks = [&](std::size_t few) {
    detail::placement_search search(problem, few);
    REQUIRE(search.run(problem.bundles.size()) == detail::search_end::found);
    return search.looks();
  };
  return {looks(detail::few_nodes), looks(none_in_classes), problem.bundles.size()};
}

// --- the search that looks at each node -----------------------------------------------

/// Chooses, and goes back, as the product does, but without classes.
class plain_search {
 public:
  explicit plain_search(const detail::placement_problem& problem)
      : problem_(problem),
        state_(problem, none_in_classes),
        tried_(problem.bundles.size()),
        chosen_(problem.bundles.size()) {}

  void limit(std::uint32_t preference, std::uint64_t most) {
    state_.limit(preference, most);
  }

  [[nodiscard]] detail::search_end run(std::uint64_t most_steps) {
    std::uint32_t depth = 0;
    bool is_open = !chosen_.empty() && enter(0);
    while (depth < chosen_.size()) {
      if (is_open && choose(depth)) {
        if (steps == most_steps) return detail::search_end::gave_up;
        ++steps;
        state_.put(problem_.bundles[depth], chosen_[depth].node);
        ++depth;
        is_open = depth < chosen_.size() && enter(depth);
        continue;
      }
      has_met_an_end_ = has_met_an_end_ || is_open;
      if (depth == 0) return detail::search_end::impossible;
      --depth;
      const std::uint32_t node = chosen_[depth].node;
      state_.take_back(problem_.bundles[depth], node);
      for (std::uint32_t n = 0; n < problem_.nodes.size(); ++n)
        if (n == node || state_.are_alike(n, node)) tried_[depth].insert(n);
      is_open = true;
    }
    return detail::search_end::found;
  }

  [[nodiscard]] const std::vector<detail::placement_decision>& decisions() const {
    return chosen_;
  }
  std::uint64_t steps = 0;

 private:
  [[nodiscard]] bool are_exchangeable(std::uint32_t a, std::uint32_t b) const {
    const auto& one = problem_.bundles[a];
    const auto& other = problem_.bundles[b];
    return one.form == other.form && one.fixed_to == none && other.fixed_to == none;
  }

  [[nodiscard]] bool enter(std::uint32_t depth) {
    tried_[depth].clear();
    if (depth > 0 && are_exchangeable(depth - 1, depth)) {
      tried_[depth] = tried_[depth - 1];
      return true;
    }
    if (!has_met_an_end_) return true;
    std::uint32_t end = depth;
    while (end < chosen_.size() && are_exchangeable(depth, end)) ++end;
    return state_.has_room(problem_.bundles[depth], std::max(end - depth, 1U));
  }

  [[nodiscard]] bool choose(std::uint32_t depth) {
    const detail::placement_bundle& bundle = problem_.bundles[depth];
    detail::placement_decision made;
    std::vector<std::pair<detail::node_rank, std::uint32_t>> fitting;
    for (std::uint32_t n = 0; n < problem_.nodes.size(); ++n) {
      if (tried_[depth].contains(n)) {
        made.is_last = true;
        continue;
      }
      const detail::node_verdict verdict = state_.judge(bundle, n);
      if (verdict.separation != none) made.separation = verdict.separation;
      if (verdict.preference != none) made.preference = verdict.preference;
      if (verdict.what == obstacle::nothing)
        fitting.emplace_back(state_.rank(bundle, n), n);
    }
    if (fitting.empty()) return false;
    std::sort(fitting.begin(), fitting.end());
    made.node = fitting[0].second;
    made.is_only = fitting.size() == 1 && !made.is_last && made.preference == none;
    if (fitting.size() > 1) {
      made.is_last = false;
      made.preference = none;
      const detail::node_rank& best = fitting[0].first;
      const auto differs =
          std::mismatch(best.begin(), best.end(), fitting[1].first.begin());
      made.reason = static_cast<std::size_t>(differs.first - best.begin());
    }
    chosen_[depth] = made;
    return true;
  }

  const detail::placement_problem& problem_;
  detail::placement_state state_;
  std::vector<std::set<std::uint32_t>> tried_;
  std::vector<detail::placement_decision> chosen_;
  bool has_met_an_end_ = false;
};

/// A preference, and what it is measured by at most.
using preference_limit = std::optional<std::pair<std::uint32_t, std::uint64_t>>;

struct search_tally {
  std::uint32_t found = 0;
  std::uint32_t went_back = 0;
  std::uint32_t failed = 0;
};

/// Compares two searches, and goes on with a limit below what each preference has
/// reached.
void compare_searches(const detail::placement_problem& problem, std::size_t few,
                      const preference_limit& limit, search_tally& tally) {
  detail::placement_search search(problem, few);
  plain_search plain(problem);
  if (limit) {
    search.limit(limit->first, limit->second);
    plain.limit(limit->first, limit->second);
  }
  const std::uint64_t most = problem.bundles.size() + 2000;
  const detail::search_end end = search.run(most);
  CHECK(end == plain.run(most));
  CHECK(search.steps() == plain.steps);
  if (search.steps() > problem.bundles.size()) ++tally.went_back;
  if (end != detail::search_end::found) {
    ++tally.failed;
    return;
  }
  ++tally.found;
  CHECK(search.decisions() == plain.decisions());
  if (limit) return;
  for (std::uint32_t i = 0; i < problem.preferences.size(); ++i)
    compare_searches(problem, few, std::pair(i, search.measure(i) - 1), tally);
}

search_tally compare_random(std::uint32_t seeds, const case_bounds& most,
                            std::size_t few) {
  search_tally tally;
  for (std::uint32_t seed = 1; seed <= seeds; ++seed) {
    CAPTURE(seed);
    const random_case one = random_of(seed, most);
    try {
      const auto problem = problem_of(one.graph, one.nodes, one.wanted, one.taken);
      compare_searches(problem, few, std::nullopt, tally);
    } catch (const placement_error&) {
      // Rules that contradict each other make no problem.
    }
  }
  return tally;
}

}  // namespace

TEST_SUITE_BEGIN("mpmd");

TEST_CASE(
    "places: the nodes that are looked at for a bundle do not grow with their number") {
  const std::vector<std::pair<std::string, std::function<void(job_graph&)>>> rules{
      {"none", [](job_graph&) {}},
      {"spread",
       [](job_graph& g) {
         g.place({"a", "b"}, place_rule::spread);
       }},
      {"pack", [](job_graph& g) { g.place({"a"}, place_rule::pack); }},
      {"apart",
       [](job_graph& g) {
         g.place({"a", "b", "c"}, place_rule::apart);
       }},
      {"exclusive", [](job_graph& g) { g.place({"a"}, place_rule::exclusive); }},
      {"together",
       [](job_graph& g) {
         g.place({"a", "b"}, place_rule::together);
       }},
      {"groups", [](job_graph& g) { g.role("a").per_group = 4; }},
      {"shared CPUs", [](job_graph& g) { g.role("d").needs.cpus = 0; }},
      {"all", [](job_graph& g) {
         g.place({"a", "b"}, place_rule::apart);
         g.place({"c"}, place_rule::pack);
         g.place({"d"}, place_rule::spread);
         g.role("a").per_group = 2;
       }}};
  for (const auto& rule : rules) {
    CAPTURE(rule.first);
    // Twice as many of each, and then again.
    for (const std::uint32_t instances : {400U, 800U, 1600U}) {
      CAPTURE(instances);
      const looks_at_nodes looks = looks_for(instances, rule.second);
      CHECK(looks.of_each_bundle() < 16);
      // That is not because looks are not counted.
      CHECK(looks.one_by_one == looks.bundles * (instances / 10));
    }
  }
}

TEST_CASE("places: by classes of nodes the same ones are chosen as by a look at each") {
  const search_tally small = compare_random(3000, {8, 5, 24}, all_in_classes);
  // Otherwise it says little.
  CHECK(small.found > 600);
  CHECK(small.failed > 300);
  CHECK(small.went_back > 300);
  const search_tally large = compare_random(200, {80, 6, 120}, detail::few_nodes);
  CHECK(large.found > 50);
}

TEST_CASE("places: up to a few nodes are looked at without classes, and chosen alike") {
  CHECK(compare_random(300, {8, 5, 24}, detail::few_nodes).found > 60);
}

TEST_SUITE_END();

}  // namespace manyworlds::mpmd_tests
