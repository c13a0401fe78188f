// Random graphs on random nodes: what is placed is checked by other code than placed it,
// and what is small is compared with all that is possible.
#include "placement_cases.hpp"

namespace manyworlds::mpmd_tests {

namespace {

/// Calls `see` with every possible assignment, those that stand included.
void each_possible(const random_case& of,
                   const std::function<void(const assignment&)>& see) {
  const placement_checker checker(of.graph, of.nodes);
  assignment all;
  for (const instance_place& each : of.taken) all.emplace_back(each.instance, each.node);
  const std::size_t standing = all.size();
  const std::function<void()> go_on = [&] {
    if (all.size() == standing + of.wanted.size()) {
      if (checker.broken_assignment(all).empty()) see(all);
      return;
    }
    const instance_id& next = of.wanted[all.size() - standing];
    for (const node_resources& node : of.nodes) {
      const bool fits = std::all_of(all.begin(), all.end(), [&](const auto& each) {
        return checker.broken_between(each.first, each.second, next, node.name).empty();
      });
      if (!fits) continue;
      all.emplace_back(next, node.name);
      go_on();
      all.pop_back();
    }
  };
  go_on();
}

/// Returns how well a preference holds: the nodes in use, or the squares of the counts.
std::uint64_t measure_of(const graph_place& rule, const assignment& all) {
  std::map<std::string, std::uint64_t> on;
  for (const auto& [id, node] : all)
    if (std::find(rule.roles.begin(), rule.roles.end(), id.role) != rule.roles.end())
      ++on[node];
  if (rule.rule == place_rule::pack) return on.size();
  std::uint64_t squares = 0;
  for (const auto& [node, count] : on) squares += count * count;
  return squares;
}

}  // namespace

TEST_SUITE_BEGIN("mpmd");

TEST_CASE("random graphs: what is placed breaks no rule, and is the same each time") {
  std::uint32_t placed = 0;
  std::uint32_t refused = 0;
  for (std::uint32_t seed = 1; seed <= 600; ++seed) {
    CAPTURE(seed);
    const random_case one = random_of(seed, {8, 5, 24});
    const std::string why = why_not(one.graph, one.nodes, one.wanted, one.taken);
    CAPTURE(why);
    if (!why.empty()) {
      ++refused;
      CHECK(why_not(one.graph, one.nodes, one.wanted, one.taken) == why);
      continue;
    }
    ++placed;
    const auto places = place_instances(one.graph, one.nodes, one.wanted, one.taken);
    CHECK(placement_checker(one.graph, one.nodes).broken(one.wanted, one.taken, places) ==
          "");
    CHECK(place_instances(one.graph, one.nodes, one.wanted, one.taken) == places);
  }
  // Otherwise it says little.
  CHECK(placed > 100);
  CHECK(refused > 100);
}

TEST_CASE("random graphs: what is possible is found, and nothing else") {
  std::uint32_t placed = 0;
  std::uint32_t refused_by_rules = 0;
  for (std::uint32_t seed = 1; seed <= 4000; ++seed) {
    CAPTURE(seed);
    const random_case one = random_of(seed, {4, 4, 6, false});
    std::uint64_t possible = 0;
    each_possible(one, [&](const assignment&) { ++possible; });
    const std::string why = why_not(one.graph, one.nodes, one.wanted, one.taken);
    CAPTURE(why);
    CHECK((possible > 0) == why.empty());
    if (why.empty()) ++placed;
    if (has(why, "rule")) ++refused_by_rules;
  }
  CHECK(placed > 300);
  CHECK(refused_by_rules > 100);
}

TEST_CASE("random graphs: pack and spread hold as well as they can, the first first") {
  std::uint32_t compared = 0;
  for (std::uint32_t seed = 1; seed <= 1500; ++seed) {
    CAPTURE(seed);
    random_case one = random_of(seed, {4, 3, 6, false});
    std::vector<std::string> others;
    for (const graph_role& each : one.graph.roles()) others.push_back(each.name);
    const std::string first = others.back();
    others.pop_back();
    const auto either = [&](std::uint32_t bit) {
      return (seed >> bit) % 2 == 0 ? place_rule::pack : place_rule::spread;
    };
    const std::size_t before = one.graph.places().size();
    one.graph.place({first}, either(0));
    if (!others.empty()) one.graph.place(others, either(1));
    if (!why_not(one.graph, one.nodes, one.wanted, one.taken).empty()) continue;
    ++compared;
    const auto measures = [&](const assignment& all) {
      std::vector<std::uint64_t> each;
      for (std::size_t i = before; i < one.graph.places().size(); ++i)
        each.push_back(measure_of(one.graph.places()[i], all));
      return each;
    };
    std::vector<std::uint64_t> best;
    each_possible(one, [&](const assignment& all) {
      const std::vector<std::uint64_t> here = measures(all);
      if (best.empty() || here < best) best = here;
    });
    assignment found;
    for (const instance_place& each : one.taken)
      found.emplace_back(each.instance, each.node);
    for (const instance_place& each :
         place_instances(one.graph, one.nodes, one.wanted, one.taken))
      found.emplace_back(each.instance, each.node);
    CHECK(measures(found) == best);
  }
  CHECK(compared > 300);
}

TEST_SUITE_END();

}  // namespace manyworlds::mpmd_tests
