#include "mpmd/placement_problem.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "mpmd/placement_bounds.hpp"
#include "mpmd/placement_bundles.hpp"

namespace manyworlds::inline v0::detail {

namespace {

class problem_maker {
 public:
  problem_maker(const job_graph& graph, std::span<const node_resources> nodes,
                std::span<const instance_id> wanted,
                std::span<const instance_place> taken,
                const std::vector<const graph_place*>& rules)
      : graph_(graph), given_(nodes), taken_(taken), rules_(rules) {
    made_.graph = &graph;
    made_.wanted = wanted;
    for (const graph_role& role : graph.roles())
      made_.role_numbers.emplace(role.name,
                                 static_cast<std::uint32_t>(made_.role_numbers.size()));
  }

  [[nodiscard]] placement_problem make() {
    take_wanted();
    take_nodes();
    take_standing();
    bundled_instances all = make_bundles(made_, taken_, rules_);
    made_.bundles = std::move(all.bundles);
    match_labels(all.label_sets);
    for (const graph_place* const rule : rules_) take_rule(*rule);
    refuse_opposites();
    for (separation& each : made_.separations) bound(each);
    for (preference& each : made_.preferences) bound(each);
    sort_nodes();
    sort_bundles();
    return std::move(made_);
  }

 private:
  void take_wanted() {
    std::set<std::pair<std::uint32_t, std::uint32_t>> seen;
    for (const instance_id& each : made_.wanted) {
      const std::uint32_t role = made_.number_of_role(each.role);
      if (role == none) {
        throw placement_error(
            fmt::format("{} cannot be placed: the graph has no such role", each.text()));
      }
      if (!seen.emplace(role, each.index).second)
        throw placement_error(fmt::format("{} is wanted twice", each.text()));
      made_.wanted_roles.push_back(role);
    }
    for (const instance_place& each : taken_) {
      const std::uint32_t role = made_.number_of_role(each.instance.role);
      if (role == none || !seen.contains({role, each.instance.index})) continue;
      throw placement_error(fmt::format("{} cannot be placed: it stands on {} already",
                                        each.instance.text(), each.node));
    }
  }

  void take_nodes() {
    for (const node_resources& node : given_) {
      const auto number = static_cast<std::uint32_t>(made_.nodes.size());
      if (!node_by_name_.emplace(node.name, number).second)
        throw placement_error(fmt::format("two nodes are called {}", node.name));
      made_.nodes.push_back(
          {&node, {node.cpu_count(), node.memory, node.gpus.size()}, 0});
    }
  }

  void take_standing() {
    std::vector<std::unordered_set<std::uint32_t>> cpus(given_.size());
    std::vector<std::unordered_set<std::string_view>> gpus(given_.size());
    for (const instance_place& each : taken_) {
      const auto found = node_by_name_.find(each.node);
      const std::uint32_t node = found == node_by_name_.end() ? none : found->second;
      made_.standing.push_back({each.instance, made_.number_of_role(each.instance.role),
                                node, static_cast<std::uint32_t>(each.cpus.size())});
      if (node == none) continue;
      cpus[node].insert(each.cpus.begin(), each.cpus.end());
      gpus[node].insert(each.gpus.begin(), each.gpus.end());
      std::uint64_t& memory = made_.nodes[node].free.memory;
      memory -= std::min(memory, each.memory);
    }
    // What is not there, or is shared, is not subtracted twice.
    for (std::uint32_t i = 0; i < given_.size(); ++i) {
      placement_amount& free = made_.nodes[i].free;
      for (const cpu_group& group : given_[i].cpus)
        for (const std::uint32_t cpu : group.cpus) free.cpus -= cpus[i].contains(cpu);
      for (const gpu_resource& gpu : given_[i].gpus)
        free.gpus -= gpus[i].contains(gpu.uuid);
    }
  }

  void match_labels(const std::vector<std::vector<std::string>>& sets) {
    for (const std::vector<std::string>& set : sets) {
      std::vector<char>& has = made_.has_labels.emplace_back(given_.size(), 1);
      for (std::size_t i = 0; i < given_.size() && !set.empty(); ++i) {
        const std::vector<std::string>& there = given_[i].labels;
        has[i] = std::all_of(set.begin(), set.end(), [&](const std::string& label) {
          return std::find(there.begin(), there.end(), label) != there.end();
        });
      }
    }
  }

  void take_rule(const graph_place& rule) {
    const bool separates =
        rule.rule == place_rule::apart || rule.rule == place_rule::exclusive;
    if (separates) return separate(rule);
    // A GPU has one owner, or some that are together: to pack and to spread change
    // nothing at that level.
    if (rule.rule == place_rule::together || rule.level == place_level::gpu) return;
    preference made{&rule, std::vector<char>(graph_.roles().size(), 0), 0, {}, 0};
    for (const std::string& name : rule.roles) {
      const std::uint32_t role = made_.number_of_role(name);
      if (role != none) made.has_role[role] = 1;
    }
    const auto number = static_cast<std::uint32_t>(made_.preferences.size());
    for (placement_bundle& bundle : made_.bundles) {
      std::uint32_t count = 0;
      for (const std::uint32_t one : bundle.wanted)
        count += static_cast<std::uint32_t>(made.has_role[made_.wanted_roles[one]]);
      if (count == 0) continue;
      bundle.preferred.emplace_back(number, count);
      made.instances += count;
      made.need += bundle.need;
    }
    made_.preferences.push_back(std::move(made));
  }

  void separate(const graph_place& rule) {
    separation made{
        &rule, {}, std::vector<std::uint32_t>(graph_.roles().size(), none), none};
    if (rule.rule == place_rule::exclusive) {
      made.parties = {{fmt::format("{}", fmt::join(rule.roles, ", "))}, {"other roles"}};
      made.party_of_role.assign(graph_.roles().size(), 1);
      made.party_of_others = 1;
    }
    for (const std::string& name : rule.roles) {
      const std::uint32_t role = made_.number_of_role(name);
      if (role == none) continue;
      std::uint32_t party = 0;
      if (rule.rule == place_rule::apart) {
        party = static_cast<std::uint32_t>(made.parties.size());
        made.parties.push_back({name});
      }
      made.party_of_role[role] = party;
    }
    for (placement_bundle& bundle : made_.bundles) join_party(made, bundle);
    // What shares no GPU is apart there.
    if (rule.level == place_level::node) made_.separations.push_back(std::move(made));
  }

  /// Finds the party of a bundle. Errors: placement_error if it has two.
  void join_party(separation& rule, placement_bundle& bundle) {
    if (rule.rule->level == place_level::gpu) {
      for (const gpu_share& share : bundle.shares)
        static_cast<void>(only_party(rule, share.wanted, share.standing));
      return;
    }
    const std::uint32_t party = only_party(rule, bundle.wanted, bundle.standing);
    if (party == none) return;
    bundle.parties.emplace_back(static_cast<std::uint32_t>(made_.separations.size()),
                                party);
    ++rule.parties[party].bundles;
  }

  [[nodiscard]] std::uint32_t only_party(
      const separation& rule, const std::vector<std::uint32_t>& wanted,
      const std::vector<std::uint32_t>& standing) const {
    std::uint32_t found = none;
    const instance_id* first = nullptr;
    const auto meet = [&](std::uint32_t role, const instance_id& id) {
      const std::uint32_t party = rule.party_of(role);
      if (party == none) return;
      if (found != none && found != party) refuse_meeting(*rule.rule, *first, id);
      found = party;
      first = &id;
    };
    for (const std::uint32_t one : wanted)
      meet(made_.wanted_roles[one], made_.wanted[one]);
    for (const std::uint32_t one : standing)
      meet(made_.standing[one].role, made_.standing[one].id);
    return found;
  }

  [[noreturn]] void refuse_meeting(const graph_place& rule, const instance_id& a,
                                   const instance_id& b) const {
    const auto names = [](const graph_place& of, const std::string& role) {
      return std::find(of.roles.begin(), of.roles.end(), role) != of.roles.end();
    };
    std::vector<std::string> together;
    std::vector<std::string> exact;
    for (const graph_place* const each : rules_) {
      if (each->rule != place_rule::together) continue;
      const bool has_a = names(*each, a.role);
      const bool has_b = names(*each, b.role);
      if (has_a || has_b) together.push_back(rule_text(*each));
      if (has_a && has_b) exact.push_back(rule_text(*each));
    }
    throw placement_error(fmt::format(
        "rules in conflict: {} and {}: {} and {} would have to share a {}, and may not",
        fmt::join(exact.empty() ? together : exact, ", "), rule_text(rule), a.text(),
        b.text(), name_of(rule.level)));
  }

  /// Two bundles cannot be near each other and far from each other.
  void refuse_opposites() const {
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> seen;
    for (const placement_bundle& bundle : made_.bundles) {
      for (const auto& [a, count_a] : bundle.preferred) {
        for (const auto& [b, count_b] : bundle.preferred) {
          const preference& pack = made_.preferences[a];
          const preference& spread = made_.preferences[b];
          if (!pack.packs() || spread.packs() || ++seen[{a, b}] < 2) continue;
          throw placement_error(fmt::format(
              "rules in conflict: {} and {}: the same instances cannot be both",
              rule_text(*pack.rule), rule_text(*spread.rule)));
        }
      }
    }
  }

  void bound(separation& rule) {
    const auto number = static_cast<std::uint32_t>(&rule - made_.separations.data());
    const std::vector<std::uint32_t> claims = standing_parties(made_, rule);
    std::uint64_t bundles = 0;
    for (separated_party& party : rule.parties) {
      bundles += party.bundles;
      party.useful.assign(given_.size(), 0);
    }
    std::vector<placement_load> loads(rule.parties.size());
    std::unordered_set<std::uint32_t> forms;
    for (const placement_bundle& bundle : made_.bundles) {
      for (const auto& [which, party] : bundle.parties) {
        if (which != number) continue;
        loads[party].add(bundle);
        // Bundles of a form differ only where they are fixed, and have one party.
        if (bundle.fixed_to != none || forms.insert(bundle.form).second)
          mark_useful(rule.parties[party], bundle, claims, party);
      }
    }
    for (std::uint32_t p = 0; p < rule.parties.size(); ++p) {
      separated_party& party = rule.parties[p];
      std::vector<placement_amount> free;
      for (std::uint32_t n = 0; n < given_.size(); ++n)
        if (party.useful[n] != 0) free.push_back(made_.nodes[n].free);
      party.fewest = party.bundles == 0 ? 0 : fewest_nodes(loads[p], free);
      const std::uint64_t share =
          bundles == 0 ? 0 : given_.size() * party.bundles / bundles;
      party.quota = std::max(party.fewest, static_cast<std::uint32_t>(share));
    }
  }

  void mark_useful(separated_party& party, const placement_bundle& bundle,
                   const std::vector<std::uint32_t>& claims, std::uint32_t itself) const {
    const bool is_fixed = bundle.fixed_to != none;
    const std::size_t first = is_fixed ? bundle.fixed_to : 0;
    const std::size_t end = is_fixed ? first + 1 : given_.size();
    for (std::size_t n = first; n < end; ++n) {
      const bool is_open = claims[n] == none || claims[n] == itself;
      if (is_open && made_.has_labels[bundle.labels][n] != 0 &&
          made_.nodes[n].free.covers(bundle.need))
        party.useful[n] = 1;
    }
  }

  void bound(preference& rule) {
    const auto number = static_cast<std::uint32_t>(&rule - made_.preferences.data());
    placement_load load;
    std::uint64_t most = 1;
    for (const placement_bundle& bundle : made_.bundles) {
      for (const auto& [which, count] : bundle.preferred) {
        if (which != number) continue;
        load.add(bundle);
        most = std::max<std::uint64_t>(most, count);
      }
    }
    std::vector<std::uint64_t> held(given_.size(), 0);
    for (const standing_instance& each : made_.standing)
      if (each.node != none && each.role != none && rule.has_role[each.role] != 0)
        ++held[each.node];
    std::vector<placement_amount> free;
    std::vector<std::uint64_t> room;
    for (const placement_node& node : made_.nodes) {
      free.push_back(node.free);
      const std::uint64_t times = node.free.times(load.least);
      room.push_back(times > UINT64_MAX / most ? UINT64_MAX : times * most);
    }
    if (rule.packs()) {
      const auto used = static_cast<std::uint64_t>(
          std::count_if(held.begin(), held.end(), [](std::uint64_t n) { return n > 0; }));
      rule.best =
          std::max<std::uint64_t>(used, load.bundles == 0 ? 0 : fewest_nodes(load, free));
    } else {
      rule.best = least_squares(std::move(held), std::move(room), rule.instances);
    }
  }

  /// Numbers the kinds of nodes.
  void sort_nodes() {
    const std::size_t roles = graph_.roles().size();
    for (const placement_bundle& each : made_.bundles)
      made_.memory_unit = std::gcd(made_.memory_unit, each.need.memory);
    std::vector<std::vector<std::uint64_t>> facts(given_.size());
    for (std::size_t i = 0; i < given_.size(); ++i) {
      const placement_amount& free = made_.nodes[i].free;
      facts[i] = {free.cpus, made_.memory_units(free.memory), free.gpus};
      for (const std::vector<char>& has : made_.has_labels)
        facts[i].push_back(static_cast<std::uint64_t>(has[i]));
      // Last come the instances of roles that the graph has not.
      facts[i].resize(facts[i].size() + roles + 1);
      made_.largest.cpus = std::max(made_.largest.cpus, free.cpus);
      made_.largest.memory = std::max(made_.largest.memory, free.memory);
      made_.largest.gpus = std::max(made_.largest.gpus, free.gpus);
    }
    for (const standing_instance& each : made_.standing) {
      if (each.node == none) continue;
      std::vector<std::uint64_t>& of = facts[each.node];
      ++of[of.size() - 1 - roles + (each.role == none ? roles : each.role)];
    }
    std::map<std::vector<std::uint64_t>, std::uint32_t> kinds;
    for (std::size_t i = 0; i < given_.size(); ++i) {
      const auto next = static_cast<std::uint32_t>(kinds.size());
      made_.nodes[i].kind = kinds.emplace(std::move(facts[i]), next).first->second;
    }
  }

  /// Puts first what has the least choice, and otherwise the largest.
  void sort_bundles() {
    placement_amount total;
    for (const placement_node& node : made_.nodes) total += node.free;
    const auto part = [](std::uint64_t need, std::uint64_t all) -> std::uint64_t {
      if (all == 0) return 0;
      return static_cast<std::uint64_t>(1e9 * static_cast<double>(need) /
                                        static_cast<double>(all));
    };
    std::vector<std::uint64_t> labelled;
    for (const std::vector<char>& has : made_.has_labels)
      labelled.push_back(
          static_cast<std::uint64_t>(std::count(has.begin(), has.end(), 1)));
    using order =
        std::tuple<bool, std::uint64_t, std::uint64_t, std::uint32_t, std::uint32_t>;
    std::vector<std::pair<order, std::size_t>> keys;
    for (std::size_t i = 0; i < made_.bundles.size(); ++i) {
      const placement_bundle& each = made_.bundles[i];
      const std::uint64_t size = std::max({part(each.need.cpus, total.cpus),
                                           part(each.need.memory, total.memory),
                                           part(each.need.gpus, total.gpus)});
      keys.push_back({{each.fixed_to == none, labelled[each.labels], ~size, each.form,
                       each.wanted.front()},
                      i});
    }
    std::sort(keys.begin(), keys.end());
    std::vector<placement_bundle> sorted;
    for (const auto& key : keys) sorted.push_back(std::move(made_.bundles[key.second]));
    made_.bundles = std::move(sorted);
  }

  const job_graph& graph_;
  std::span<const node_resources> given_;
  std::span<const instance_place> taken_;
  const std::vector<const graph_place*>& rules_;
  std::unordered_map<std::string_view, std::uint32_t> node_by_name_;
  placement_problem made_;
};

}  // namespace

std::uint64_t placement_amount::times(const placement_amount& need) const noexcept {
  std::uint64_t least = UINT64_MAX;
  if (need.cpus > 0) least = std::min(least, cpus / need.cpus);
  if (need.memory > 0) least = std::min(least, memory / need.memory);
  if (need.gpus > 0) least = std::min(least, gpus / need.gpus);
  return least;
}

placement_amount& placement_amount::operator+=(const placement_amount& other) noexcept {
  cpus = capped_sum(cpus, other.cpus);
  memory = capped_sum(memory, other.memory);
  gpus = capped_sum(gpus, other.gpus);
  return *this;
}

placement_amount& placement_amount::operator-=(const placement_amount& other) noexcept {
  cpus -= other.cpus;
  memory -= other.memory;
  gpus -= other.gpus;
  return *this;
}

placement_problem make_placement_problem(const job_graph& graph,
                                         std::span<const node_resources> nodes,
                                         std::span<const instance_id> wanted,
                                         std::span<const instance_place> taken,
                                         const std::vector<const graph_place*>& rules) {
  return problem_maker(graph, nodes, wanted, taken, rules).make();
}

std::vector<std::uint32_t> standing_parties(const placement_problem& problem,
                                            const separation& rule) {
  std::vector<std::uint32_t> parties(problem.nodes.size(), none);
  for (const standing_instance& each : problem.standing) {
    const std::uint32_t party = rule.party_of(each.role);
    if (each.node == none || party == none) continue;
    std::uint32_t& there = parties[each.node];
    there = there == none || there == party ? party : blocked;
  }
  return parties;
}

std::string rule_text(const graph_place& rule) {
  return fmt::format("{} [{}]{}", name_of(rule.rule), fmt::join(rule.roles, ", "),
                     rule.level == place_level::gpu ? " at gpu" : "");
}

}  // namespace manyworlds::inline v0::detail
