// Random graphs on random nodes: what is placed is checked by other code than placed it,
// and what is small is compared with all that is possible.
#include <random>

#include "placement_fixture.hpp"

namespace manyworlds::mpmd_tests {

namespace {

class dice {
 public:
  explicit dice(std::uint32_t seed) : engine_(seed) {}
  /// Returns a number from 0 to `last`; the same everywhere.
  std::uint32_t upto(std::uint32_t last) {
    return static_cast<std::uint32_t>(engine_() % (std::uint64_t{last} + 1));
  }
  bool one_in(std::uint32_t n) { return upto(n - 1) == 0; }

 private:
  std::mt19937_64 engine_;
};

struct random_case {
  job_graph graph{"random"};
  std::vector<node_resources> nodes;
  std::vector<instance_id> wanted;
  std::vector<instance_place> taken;
};

struct bounds {
  std::uint32_t nodes;
  std::uint32_t roles;
  std::uint32_t instances;
  bool prefers = true;  ///< with rules pack and spread
};

const std::vector<std::string> role_names = {"a", "b", "c", "d", "e", "f"};

void add_roles(random_case& made, dice& any, const bounds& most) {
  const std::uint32_t roles = 1 + any.upto(most.roles - 1);
  std::uint32_t left = most.instances;
  for (std::uint32_t i = 0; i < roles && left > 0; ++i) {
    role_needs needs{any.upto(3), any.upto(4) * gib, any.one_in(2) ? any.upto(2) : 0, {}};
    if (any.one_in(4)) needs.labels = {any.one_in(2) ? "fast" : "near"};
    const std::uint32_t count =
        1 + any.upto(std::min(left, most.instances / roles + 1) - 1);
    graph_role& role = add_role(made.graph, role_names[i], count, needs);
    if (count % 2 == 0 && any.one_in(4)) role.per_group = 2;
    left -= count;
  }
}

void add_rules(random_case& made, dice& any, bool prefers) {
  const std::vector<graph_role>& roles = made.graph.roles();
  const std::uint32_t rules = any.upto(3);
  for (std::uint32_t i = 0; i < rules; ++i) {
    std::vector<std::string> names;
    for (const graph_role& each : roles)
      if (any.one_in(2)) names.push_back(each.name);
    if (names.empty()) continue;
    const auto rule = static_cast<place_rule>(any.upto(4));
    const bool is_preference = rule == place_rule::pack || rule == place_rule::spread;
    if (is_preference && !prefers) continue;
    const bool is_gpu = any.one_in(3) && !is_preference;
    // What shares GPUs needs the same number of them.
    if (rule == place_rule::together && is_gpu) {
      for (const std::string& name : names) made.graph.role(name).needs.gpus = 1;
    }
    made.graph.place(std::move(names), rule,
                     is_gpu ? place_level::gpu : place_level::node);
  }
  // A rule may have come after one that it would have made unequal.
  for (const graph_place& each : made.graph.places()) {
    if (each.rule != place_rule::together || each.level != place_level::gpu) continue;
    for (const std::string& name : each.roles) made.graph.role(name).needs.gpus = 1;
  }
}

random_case random_of(std::uint32_t seed, const bounds& most) {
  dice any(seed);
  random_case made;
  add_roles(made, any, most);
  add_rules(made, any, most.prefers);
  const std::uint32_t nodes = 1 + any.upto(most.nodes - 1);
  for (std::uint32_t i = 0; i < nodes; ++i) {
    const std::string name = "n" + std::to_string(i);
    // Nodes are often alike, and a search that leaves out the like of what it tried must
    // not take others for such.
    if (i > 0 && any.one_in(2)) {
      made.nodes.push_back(made.nodes[any.upto(i - 1)]);
      made.nodes.back().name = name;
      // What no instance can need makes no difference.
      made.nodes.back().memory += i * (gib / 64);
      for (gpu_resource& gpu : made.nodes.back().gpus)
        gpu.uuid = name + gpu.uuid.substr(gpu.uuid.find('-'));
      continue;
    }
    std::vector<std::string> labels;
    if (any.one_in(2)) labels.emplace_back("fast");
    if (any.one_in(2)) labels.emplace_back("near");
    made.nodes.push_back(node_of(name, {1 + any.upto(6), any.upto(5)},
                                 (3 + any.upto(20)) * gib, {any.upto(3), any.upto(3)},
                                 std::move(labels)));
  }
  made.wanted = all_of(made.graph);
  // Some stand already, where that is possible at all.
  if (any.one_in(2)) {
    std::vector<instance_id> first;
    std::vector<instance_id> rest;
    for (const instance_id& each : made.wanted)
      (any.one_in(2) ? first : rest).push_back(each);
    if (why_not(made.graph, made.nodes, first).empty()) {
      made.taken = place_instances(made.graph, made.nodes, first);
      made.wanted = rest;
    }
  }
  return made;
}

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
